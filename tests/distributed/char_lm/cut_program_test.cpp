// SPDX-License-Identifier: Apache-2.0
//
// char_lm as a person starts it with mpirun. What starts ranks, the program for it, and the program that is never more
// than one come from the environment.
#include "char_lm/support.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstdlib>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  REQUIRE_MESSAGE(value != nullptr, name, " is not set: ctest -R char_lm -L mpi does so");
  return value;
}

/// A text, a place for files, and commands on them.
class workplace {
 public:
  workplace() {
    const text data = small_text();
    write_file(files_ / "text", {data.bytes().begin(), data.bytes().end()});
  }

  std::string in(const std::string& name) const { return (files_ / name.c_str()).string(); }
  std::string with_text(const std::string& program) const { return program + " --text " + in("text"); }
  std::string alone(const std::string& arguments) const {
    return with_text(from_environment("AFT_TEST_WHOLE")) + arguments;
  }
  std::string cut(int ranks, const std::string& arguments) const {
    return from_environment("AFT_TEST_START") + " " + std::to_string(ranks) + " " +
           with_text(from_environment("AFT_TEST_CUT")) + arguments;
  }

  /// Has to work; what it printed.
  std::string run(const std::string& command) const {
    const outcome done = run_command(command + " 2>&1");
    INFO(command, ": ", done.output);
    REQUIRE(done.status == 0);
    return done.output;
  }
  /// The results of a command, one for each mixer.
  nlohmann::json results(const std::string& command) {
    const std::string out = "out" + std::to_string(++runs_);
    run(command + " --out " + in(out));
    return nlohmann::json::parse(read_file(in(out) + "/results.json"))["results"];
  }

 private:
  scratch_directory files_;
  int runs_ = 0;
};

// Few messages: ranks that wait for one spin, and beside other programs each may take a slice of the processor's time.
constexpr const char* small =
    " --dim 32 --heads 4 --layers 1 --context 192 --window 8 --batch 5 --threads 1 --generate 0";
constexpr const char* three = " --mixer local,conv,simple --steps 4";

void check_same_training(const nlohmann::json& a, const nlohmann::json& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(a[i]["mixer"]);
    CHECK(a[i]["train_bits"].size() == 4);
    CHECK(a[i]["train_bits"] == b[i]["train_bits"]);
    CHECK(a[i]["held_out_bits"] == b[i]["held_out_bits"]);
    CHECK(a[i].value("biases", nlohmann::json()) == b[i].value("biases", nlohmann::json()));
  }
}

}  // namespace

TEST_CASE("cut program: one rank is the plain program, and a cut repeats itself, bit for bit") {
  workplace here;
  const nlohmann::json alone = here.results(here.alone(std::string(small) + three));
  check_same_training(here.results(here.cut(1, std::string(small) + three)), alone);

  const nlohmann::json two = here.results(here.cut(2, std::string(small) + three));
  check_same_training(here.results(here.cut(2, std::string(small) + three)), two);
  // Another order of sums: that the losses are near is the model's test, and that there were two ranks this one's.
  for (std::size_t i = 0; i < two.size(); ++i) {
    INFO(two[i]["mixer"]);
    CHECK(two[i]["received_in_calls"].size() == 2);
    CHECK(two[i]["received_in_calls"][1] > 0);
    CHECK(two[i]["received_in_sums"][0] > 0);
  }
}

TEST_CASE("cut program: an interrupted run goes on to the same losses, and one process writes with its file") {
  workplace here;
  const std::string training = std::string(small) + " --mixer conv --steps 4";
  const nlohmann::json whole = here.results(here.cut(2, training));
  const std::string file = " --save " + here.in("run.safetensors");
  here.run(here.cut(2, training + " --stop-at 2" + file));
  const nlohmann::json rest = here.results(
      here.cut(2, " --load " + here.in("run.safetensors") + file + " --threads 1 --generate 40 --prompt light"));
  check_same_training(rest, whole);
  const nlohmann::json after = here.results(
      here.alone(" --load " + here.in("run.safetensors") + " --eval-only --threads 1 --generate 40 --prompt light"));
  CHECK(after[0]["text"].get<std::string>().size() == 40);
  CHECK(after[0]["text"] == rest[0]["text"]);
}

TEST_CASE("cut program: the first rank alone speaks") {
  const workplace here;
  const std::string said = here.run(here.cut(3, std::string(small) + " --mixer simple --steps 2"));
  INFO(said);
  const std::size_t first = said.find("3 ranks of 1 threads");
  REQUIRE(first != std::string::npos);
  CHECK(said.find("3 ranks of 1 threads", first + 1) == std::string::npos);
  const std::size_t table = said.find("mixer        parameters");
  REQUIRE(table != std::string::npos);
  CHECK(said.find("mixer        parameters", table + 1) == std::string::npos);
}

TEST_CASE("cut program: what cannot be cut, or is wrong, is refused by all ranks and said once") {
  const workplace here;
  const auto check_refused = [&](const std::string& arguments, const std::string& complaint) {
    const outcome done = run_command(here.cut(2, arguments) + " 2>&1 >/dev/null");
    INFO(arguments, ": ", done.output);
    CHECK(done.status == 2);
    const std::size_t said = done.output.find("char_lm: ");
    REQUIRE(said != std::string::npos);
    CHECK(done.output.find(complaint, said) != std::string::npos);
    CHECK(done.output.find("\nchar_lm: ", said + 1) == std::string::npos);
  };
  check_refused(std::string(small) + " --mixer conv,attention",
                "--mixer attention: its sequences cannot be cut over 2");
  // Found out by the rank that writes, after steps that all made.
  check_refused(std::string(small) + " --mixer simple --steps 1 --save " + here.in("none") + "/run",
                "cannot be created");
}

TEST_CASE("cut program: a signal to one rank stops all at the same step, and saves") {
  const workplace here;
  const std::string file = here.in("run.safetensors");
  // Each process leaves its number under its rank's, which the two MPIs call differently.
  const std::string number = "echo $$ >" + here.in("pid") + "$OMPI_COMM_WORLD_RANK$PMI_RANK; exec ";
  const std::string program = here.with_text(from_environment("AFT_TEST_CUT")) + small +
                              " --mixer simple --steps 100000000 --save-every 100000000 --save " + file;
  const outcome done =
      run_command("(timeout 60 " + from_environment("AFT_TEST_START") + " 2 sh -c '" + number + program + "' & ) >" +
                  here.in("log") + " 2>&1; for i in $(seq 100); do sleep 0.1; grep -q simple " + here.in("log") +
                  " && break; done; kill -INT $(cat " + here.in("pid") +
                  "1); for i in $(seq 100); do sleep 0.1; "
                  "grep -q interrupted " +
                  here.in("log") + " && break; done; cat " + here.in("log"));
  INFO(done.output);
  CHECK(done.output.find("interrupted at step") != std::string::npos);
  const safetensors::file saved = safetensors::file::read(file);
  CHECK(done.output.find("interrupted at step " + saved.header().at("step") + ";") != std::string::npos);
}
