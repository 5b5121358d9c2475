// SPDX-License-Identifier: Apache-2.0
//
// The program as a person meets it: arguments, files, exit status.
#include "images.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace examples;
using namespace examples::vision;
using namespace examples::vision::test;

namespace {

constexpr const char* small = " --dim 16 --heads 4 --layers 1 --window 3 --batch 6 --threads 2";

std::string classify() {
  return std::string(VISION_PROGRAM) + " classify";
}
std::string data_in(const scratch_directory& directory) {
  write_small_images(directory.path());
  return " --data " + directory.path().string();
}

/// The program has to fail with status 2, say this on stderr, and nothing else there.
void check_program_refuses(const std::string& arguments, const std::string& complaint) {
  const outcome result = run_command(classify() + arguments + " 2>&1 >/dev/null");
  INFO(arguments, ": ", result.output);
  CHECK(result.status == 2);
  CHECK(result.output.find(complaint) != std::string::npos);
  CHECK(result.output.starts_with("vision: "));
  CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 1);
}

nlohmann::json results_in(const std::filesystem::path& directory) {
  return nlohmann::json::parse(read_file(directory / "results.json"));
}

}  // namespace

TEST_CASE("vision: help and wrong arguments") {
  const outcome help = run_command(classify() + " --help");
  CHECK(help.status == 0);
  CHECK(help.output.find("--mixer") != std::string::npos);
  CHECK(run_command(std::string(VISION_PROGRAM) + " 2>/dev/null").status == 2);
  CHECK(run_command(std::string(VISION_PROGRAM) + " paint 2>/dev/null").status == 2);
  const scratch_directory directory;
  const std::string data = data_in(directory);
  check_program_refuses(data + " --frobnicate", "--frobnicate");
  check_program_refuses(data + " --mixer conv", "--mixer conv: expected conv2d, attention, full, local, simple or all");
  check_program_refuses(data + " --steps 0", "--steps: expected a number above 0, not 0");
  check_program_refuses(data + " --epochs nan", "--epochs");
  check_program_refuses(data + " --epochs 1e300", "--epochs");
  check_program_refuses(data + " --dim 33", "multiple of 16");
  check_program_refuses(data + " --heads 5", "divisor of --dim");
  check_program_refuses(data + " --patch 5", "divisor of the images' sides, 12 and 8");
  check_program_refuses(data + " --images 61", "not the 61");
  check_program_refuses(data + " --eval-only", "--load");
  check_program_refuses(data + " --load x --dim 32", "--dim");
}

TEST_CASE("vision: image files that are missing or damaged") {
  const scratch_directory directory;
  const std::string data = " --data " + directory.path().string();
  check_program_refuses(" --data " + (directory / "none").string(), "not a directory");
  check_program_refuses(data, "train-images-idx3-ubyte");
  write_small_images(directory.path());
  const std::filesystem::path images = directory / "t10k-images-idx3-ubyte";
  const std::string good = read_file(images);
  write_file(images, good.substr(0, good.size() / 2));
  check_program_refuses(data, "truncated");
  write_file(images, "GIF89a" + good);
  check_program_refuses(data, "not an IDX file");
  write_file(images, "");
  check_program_refuses(data, "too short");
}

TEST_CASE("vision: trains, writes results, and goes on from a checkpoint to the same losses") {
  const scratch_directory directory;
  const std::string base = classify() + data_in(directory);
  const auto out = [&](const char* name) { return " --out " + (directory / name).string(); };
  const std::string save = " --save " + (directory / "run.safetensors").string();
  const std::string load = " --load " + (directory / "run.safetensors").string();

  const outcome whole = run_command(base + small + " --mixer conv2d --epochs 0.95" + out("whole"));
  INFO(whole.output);
  REQUIRE(whole.status == 0);
  CHECK(whole.output.find("accuracy") != std::string::npos);
  REQUIRE(run_command(base + small + " --mixer conv2d --epochs 0.95 --stop-at 4" + save).status == 0);
  REQUIRE(run_command(base + load + save + " --threads 1" + out("rest")).status == 0);
  const auto result = [&](const char* name) { return results_in(directory / name)["results"][0]; };
  CHECK(result("whole")["train_bits"].size() == 9);
  CHECK(result("whole")["train_bits"] == result("rest")["train_bits"]);
  for (const char* same : {"accuracy", "test_bits", "confusion", "biases", "parameters"})
    CHECK(result("whole")[same] == result("rest")[same]);
  CHECK(result("whole")["biases"][0]["shape"] == nlohmann::json({4, 3, 3}));
  CHECK(result("whole")["step_ms"] > 0);
  CHECK(result("whole")["peak_bytes"] > 0);
  REQUIRE(run_command(base + load + " --eval-only" + out("eval")).status == 0);
  CHECK(result("eval")["confusion"] == result("whole")["confusion"]);

  const std::string file = (directory / "run.safetensors").string();
  const std::string good = read_file(file);
  write_file(file, good.substr(0, good.size() / 2));
  check_program_refuses(" --data " + directory.path().string() + load, "truncated");
  write_file(file, good);
  check_program_refuses(" --data " + directory.path().string() + load + " --images 30", "other images");
  check_program_refuses(" --data " + directory.path().string() + load + " --mixer simple",
                        "its mixer is conv2d, not simple");
}

TEST_CASE("vision: AFT-conv begins with a Transformer's weights") {
  const scratch_directory directory;
  const std::string base = classify() + data_in(directory) + small;
  const std::string file = (directory / "vit.safetensors").string();
  REQUIRE(run_command(base + " --mixer attention --steps 3 --save " + file).status == 0);
  const outcome result =
      run_command(base + " --mixer conv2d --steps 2 --begin-with " + file + " --out " + (directory / "o").string());
  INFO(result.output);
  CHECK(result.status == 0);
  CHECK(result.output.find("tensors begin as in") != std::string::npos);
  CHECK(results_in(directory / "o")["results"][0]["begun_with"] == "vit.safetensors");
  const std::string rest = " --data " + directory.path().string() + small + " --mixer conv2d";
  check_program_refuses(rest + " --begin-with " + (directory / "none").string(), "none");
  check_program_refuses(rest + " --names " + file, "--begin-with");
  check_program_refuses(rest + " --begin-with " + file + " --names " + file, "expected a JSON object");
  check_program_refuses(rest + " --begin-with " + file + " --patch 4", "has shape (4, 16), expected (16, 16)");
}

TEST_CASE("vision: several mixers have a checkpoint each") {
  const scratch_directory directory;
  const outcome result = run_command(classify() + data_in(directory) + small + " --mixer all --steps 2 --save " +
                                     (directory / "m.safetensors").string() + " --out " + (directory / "o").string());
  INFO(result.output);
  CHECK(result.status == 0);
  for (const char* name : {"m-conv2d.safetensors", "m-attention.safetensors", "m-full.safetensors",
                           "m-local.safetensors", "m-simple.safetensors"})
    CHECK(std::filesystem::exists(directory / name));
  CHECK(results_in(directory / "o")["results"].size() == 5);
}

TEST_CASE("vision: an interrupt saves and names the way on") {
  const scratch_directory directory;
  const std::string file = (directory / "run.safetensors").string();
  // The shell's own number names the process: exec keeps it.
  const outcome result = run_command("sh -c 'echo $$ >" + (directory / "pid").string() + "; exec " + classify() +
                                     data_in(directory) + small + " --mixer simple --steps 100000000 --save " + file +
                                     "' & sleep 1; kill -INT $(cat " + (directory / "pid").string() + "); wait");
  INFO(result.output);
  CHECK(result.output.find("interrupted at step") != std::string::npos);
  CHECK(std::filesystem::exists(file));
}

#ifdef VISION_LEARNS
TEST_CASE("vision: the quick run, smaller still, learns of real images") {
  const scratch_directory directory;
  // scripts/deps installs the package dataset-fashion-mnist, which the program reads without being told where.
  const outcome result =
      run_command(classify() + " --quick --dim 32 --layers 2 --images 1280 --test-images 500 --epochs 3 " +
                  "--threads 2 --out " + (directory / "o").string() + " 2>&1");
  INFO(result.output);
  REQUIRE(result.status == 0);
  const nlohmann::json one = results_in(directory / "o")["results"][0];
  CHECK(one["mixer"] == "conv2d");
  // One in ten by chance; what says of all images the same has log2(10) = 3.32 bits.
  CHECK(one["accuracy"] > 0.5);
  CHECK(one["train_bits"].back() < 2.5);
}
#endif
