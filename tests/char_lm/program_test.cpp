// SPDX-License-Identifier: Apache-2.0
//
// The program as a person meets it: arguments, files, exit status.
#include "support.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

namespace {

constexpr const char* small = " --dim 32 --heads 4 --layers 1 --context 48 --window 8 --batch 2 --threads 2";

std::string program() {
  return CHAR_LM_PROGRAM;
}

std::string text_in(const scratch_directory& directory) {
  const text data = small_text();
  write_file(directory / "text", {data.bytes().begin(), data.bytes().end()});
  return " --text " + (directory / "text").string();
}

/// The program has to fail with status 2, say this on stderr, and nothing else there.
void check_refused(const std::string& arguments, const std::string& complaint) {
  const outcome result = run_command(program() + arguments + " 2>&1 >/dev/null");
  INFO(arguments, ": ", result.output);
  CHECK(result.status == 2);
  CHECK(result.output.find(complaint) != std::string::npos);
  CHECK(result.output.starts_with("char_lm: "));
  CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("program: help and wrong arguments") {
  const outcome help = run_command(program() + " --help");
  CHECK(help.status == 0);
  CHECK(help.output.find("--mixer") != std::string::npos);
  const scratch_directory directory;
  const std::string text = text_in(directory);
  check_refused("", "--text");
  check_refused(text + " --frobnicate", "--frobnicate");
  check_refused(text + " --mixer lstm", "--mixer lstm");
  check_refused(text + " --steps 0", "--steps: expected a number above 0, not 0");
  check_refused(text + " --lr nan", "--lr");
  check_refused(text + " --steps 99999999999999999999", "--steps");
  check_refused(text + " --steps many", "--steps");
  check_refused(text + " --lr -1", "--lr");
  check_refused(text + " --dim 33", "multiple of 16");
  check_refused(text + " --heads 5", "divisor of --dim");
  check_refused(text + " --window 300", "--window");
  check_refused(text + " --threads 0", "--threads");
  check_refused(text + " --eval-only", "--load");
  check_refused(text + " --load x --dim 32", "--dim");
}

TEST_CASE("program: text files that are missing, empty or short") {
  const scratch_directory directory;
  check_refused(" --text " + (directory / "none").string(), "not found");
  check_refused(" --text " + directory.path().string(), "directory");
  write_file(directory / "empty", "");
  check_refused(" --text " + (directory / "empty").string(), "empty");
  write_file(directory / "short", "In the beginning");
  check_refused(" --text " + (directory / "short").string(), "16 bytes");
}

TEST_CASE("program: trains, writes results, and goes on from a checkpoint to the same losses") {
  const scratch_directory directory;
  const std::string text = text_in(directory);
  const std::string base = program() + text;
  const auto out = [&](const char* name) { return " --out " + (directory / name).string(); };
  const std::string save = " --save " + (directory / "run.safetensors").string();
  const std::string load = " --load " + (directory / "run.safetensors").string();

  const outcome whole = run_command(base + small + " --mixer local --steps 9 --generate 30" + out("whole"));
  INFO(whole.output);
  REQUIRE(whole.status == 0);
  CHECK(whole.output.find("bits/char") != std::string::npos);
  CHECK(whole.output.find("local writes:") != std::string::npos);

  REQUIRE(run_command(base + small + " --mixer local --steps 9 --stop-at 4 --generate 0" + save).status == 0);
  const outcome rest = run_command(base + load + save + " --generate 30 --threads 1" + out("rest"));
  INFO(rest.output);
  REQUIRE(rest.status == 0);
  const auto results = [&](const char* name) {
    return nlohmann::json::parse(read_file(directory / name / "results.json"))["results"][0];
  };
  CHECK(results("whole")["train_bits"].size() == 9);
  CHECK(results("whole")["train_bits"] == results("rest")["train_bits"]);
  CHECK(results("whole")["held_out_bits"] == results("rest")["held_out_bits"]);
  CHECK(results("whole")["biases"] == results("rest")["biases"]);
  CHECK(results("whole")["text"] == results("rest")["text"]);
  CHECK(results("whole")["characters"] == 30);
  CHECK(results("whole")["state_bytes"] == results("rest")["state_bytes"]);
  CHECK(results("whole")["characters_per_second"] > 0);

  const outcome evaluated = run_command(base + load + " --eval-only --generate 30" + out("eval"));
  REQUIRE(evaluated.status == 0);
  CHECK(results("eval")["held_out_bits"] == results("whole")["held_out_bits"]);
}

TEST_CASE("program: conv writes far beyond its context, and says how fast") {
  const scratch_directory directory;
  const std::string text = text_in(directory);
  const std::string file = (directory / "run.safetensors").string();
  const outcome whole = run_command(program() + text + small + " --mixer conv --steps 1 --generate 3000 --save " +
                                    file + " --out " + (directory / "o").string());
  INFO(whole.output);
  REQUIRE(whole.status == 0);
  CHECK(whole.output.find("chars/s") != std::string::npos);
  const auto result = nlohmann::json::parse(read_file(directory / "o" / "results.json"))["results"][0];
  CHECK(result["text"].get<std::string>().size() == 3000);
  // Long enough to be watched, and to be interrupted: what was written by then is printed.
  const outcome stopped = run_command(
      "sh -c 'echo $$ >" + (directory / "pid").string() + "; exec " + program() + text + " --load " + file +
      " --eval-only --generate 100000000' & sleep 3; kill -INT $(cat " + (directory / "pid").string() + "); wait");
  INFO(stopped.output);
  CHECK(stopped.output.find("conv writes character") != std::string::npos);
  CHECK(stopped.output.find("/s") != std::string::npos);
  CHECK(stopped.output.find("of 100000000 characters") != std::string::npos);
}

TEST_CASE("program: several mixers have a checkpoint each") {
  const scratch_directory directory;
  const outcome result =
      run_command(program() + text_in(directory) + small + " --mixer all --steps 2 --generate 0 --save " +
                  (directory / "m.safetensors").string() + " --out " + (directory / "o").string());
  INFO(result.output);
  CHECK(result.status == 0);
  for (const mixer_kind kind : all_mixers) {
    const std::string name = "m-" + std::string(name_of(kind)) + ".safetensors";
    CHECK(std::filesystem::exists(directory / name.c_str()));
  }
}

TEST_CASE("program: an interrupt saves and names the way on") {
  const scratch_directory directory;
  const std::string file = (directory / "run.safetensors").string();
  // The shell's own number names the process: exec keeps it.
  const outcome result = run_command("sh -c 'echo $$ >" + (directory / "pid").string() + "; exec " + program() +
                                     text_in(directory) + small + " --mixer simple --steps 100000000 --save " + file +
                                     "' & sleep 1; kill -INT $(cat " + (directory / "pid").string() + "); wait");
  INFO(result.output);
  CHECK(result.output.find("interrupted at step") != std::string::npos);
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("program: interrupts of a thread that computes leave its memory whole") {
  const scratch_directory directory;
  const std::string text = text_in(directory);
  const std::string alone = " --dim 32 --heads 4 --layers 1 --context 192 --window 8 --batch 5 --threads 1";
  const std::string pid = (directory / "pid").string(), log = (directory / "log").string();
  // With a handler on the stack of what computes, 14 of 35 of them ended with a corrupt heap.
  for (int i = 0; i < 6; ++i) {
    write_file(log, "");
    const outcome result = run_command("sh -c 'echo $$ >" + pid + "; exec " + program() + text + alone +
                                       " --mixer simple --steps 100000000' >" + log +
                                       " 2>&1 & for i in $(seq 100); do sleep 0.1; grep -q simple " + log +
                                       " && break; done; kill -INT $(cat " + pid + "); wait; cat " + log);
    INFO(result.output);
    CHECK(result.output.find("interrupted at step") != std::string::npos);
  }
}

TEST_CASE("program: corrupt checkpoints are refused and kept") {
  const scratch_directory directory;
  const std::string text = text_in(directory);
  const std::filesystem::path file = directory / "run.safetensors";
  REQUIRE(
      run_command(program() + text + small + " --mixer conv --steps 2 --generate 0 --save " + file.string()).status ==
      0);
  const std::string good = read_file(file);
  const std::string arguments = text + " --load " + file.string() + " --save " + file.string();

  const auto check_corrupt = [&](const std::string& bytes, const std::string& complaint) {
    write_file(file, bytes);
    check_refused(arguments, complaint);
    CHECK(read_file(file) == bytes);
    // Nothing is left beside it.
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 2);
  };
  check_corrupt("", "too short");
  check_corrupt("hello", "too short");
  check_corrupt(std::string(100, 'A'), "the header claims");
  check_corrupt(good.substr(0, good.size() / 2), "truncated");
  check_corrupt(good + "tail", "behind the last tensor");
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  check_corrupt(flipped, "checksum");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  check_corrupt(replaced("\"dtype\":\"F32\"", "\"dtype\":\"F33\""), "unknown dtype");
  check_corrupt(replaced("\"steps\":\"2\"", "\"steps\":\"3\""), "checksum is wrong");
  check_corrupt(replaced("\"fnv1a\"", "\"gnv1a\""), "checksum is missing");
  // Whole files that say something else.
  const auto saying = [&](const std::string& key, const std::string& value) {
    write_file(file, good);
    const auto whole = safetensors::file::read(file);
    safetensors::metadata header = whole.header();
    header[key] = value;
    safetensors::write(file, header, sources_of(whole));
    return read_file(file);
  };
  check_corrupt(saying("mixer", "cone"), "not one that is known");
  check_corrupt(saying("mixer", "full"), "tensor");
  check_corrupt(saying("format", "aft char_lm 9"), "not a checkpoint of this program");
  check_corrupt(saying("steps", "x"), "no whole number");
  check_corrupt(saying("step", "7"), "\"step\" is 7");

  std::filesystem::remove(file);
  check_refused(arguments, "not found");
  write_file(file, good);
  check_refused(arguments + " --mixer local", "its mixer is conv, not local");
  CHECK(run_command(program() + arguments + " --generate 0").status == 0);
}
