// SPDX-License-Identifier: Apache-2.0
#include "json_lines.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>

namespace aft::gpu {

namespace {

int file = -1;
std::string stage_name;
int cases = 0;

/// A line when a case begins, which is the last one where it hangs, and one when it has ended.
struct case_lines : doctest::IReporter {
  std::string name;
  explicit case_lines(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& data) override {
    name = quoted(data.m_name);
    write_line("\"begins\": " + name);
  }
  void test_case_end(const doctest::CurrentTestCaseStats& seen) override {
    ++cases;
    char numbers[128];
    std::snprintf(numbers, sizeof(numbers),
                  ", \"passed\": %s, \"failed_checks\": %d, \"checks\": %d, \"seconds\": %.3f",
                  seen.testCaseSuccess ? "true" : "false", seen.numAssertsFailedCurrentTest, seen.numAssertsCurrentTest,
                  seen.seconds);
    write_line("\"test\": " + name + numbers);
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

void open_lines(const char* path, std::string stage) {
  stage_name = std::move(stage);
  file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) throw std::runtime_error(std::string("cannot write ") + path);
}

void write_line(const std::string& members) {
  if (file < 0) return;
  const std::string line = "{\"stage\": " + quoted(stage_name) + ", " + members + "}\n";
  if (write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw std::runtime_error("a result could not be written");
  // Pipes and the like have no disk to reach.
  if (fdatasync(file) != 0 && errno != EINVAL && errno != EROFS) throw std::runtime_error("a result was not kept");
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

int cases_run() {
  return cases;
}

}  // namespace aft::gpu

REGISTER_LISTENER("json_lines", 1, aft::gpu::case_lines);
