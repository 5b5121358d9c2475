// SPDX-License-Identifier: Apache-2.0
#include "engines.hpp"

#include <aft/core/config.hpp>

#include <dlfcn.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <iostream>

namespace aft::test {

namespace {

#define AFT_TEST_TEXT_(x) #x
#define AFT_TEST_TEXT(x) AFT_TEST_TEXT_(x)
const engine own{AFT_TEST_TEXT(AFT_HOST_ISA), &functions_f32, &functions_f64, &functions_f16, &functions_bf16};

/// What the build says of an engine: its file, and the feature of a processor that it needs.
struct built_engine {
  const char *name, *file, *feature;
};
constexpr built_engine built[] = {
#if defined(AFT_TEST_ENGINES)
    AFT_TEST_ENGINES
#endif
    {nullptr, nullptr, nullptr}};

bool has([[maybe_unused]] const std::string& feature) {
  if (feature.empty()) return true;
#if defined(__x86_64__)
  // The compilers take literals alone.
  if (feature == "v2") return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  if (feature == "v3") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool wide =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (feature == "v4") return wide;
  if (feature == "v4-bf16") return wide && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__) && defined(__linux__)
  if (feature == "neon") return true;
  if (feature == "neon-bf16") return (getauxval(AT_HWCAP2) >> 14 & 1) != 0;
#endif
  std::cerr << "nobody knows how to ask for " << feature << std::endl;
  std::exit(1);
}

const engine* load(const built_engine& from) {
  // A level of aft::compiled is the library told so, as a user's environment may say it.
  const bool is_level = *from.feature != '\0';
  const char* const users = std::getenv("AFT_ISA");
  const std::string before = users == nullptr ? "" : users;
  if (is_level) setenv("AFT_ISA", from.name, 1);
  void* const object = dlopen(from.file, RTLD_NOW | RTLD_LOCAL);
  void* const found = object == nullptr ? nullptr : dlsym(object, "aft_test_engine");
  if (found == nullptr) {
    // A run without it would look like one that had checked it.
    std::cerr << "engine " << from.name << ": " << dlerror() << std::endl;
    std::exit(1);
  }
  if (is_level) setenv("AFT_ISA", before.c_str(), 1);
  const engine* const loaded = static_cast<const engine*>(found);
  if (is_level && std::string(loaded->isa) != from.name) {
    std::cerr << "engine " << from.name << " runs " << loaded->isa << std::endl;
    std::exit(1);
  }
  return loaded;
}

struct all_engines {
  std::vector<named_engine> runnable;
  std::vector<std::string> left_out;

  all_engines() {
    const char* const only = std::getenv("AFT_TEST_ENGINE");
    const auto wanted = [&](const char* name) { return only == nullptr || std::string(only) == name; };
    if (on_device() || wanted("own")) runnable.push_back({"own", &own});
    if (on_device()) return;
    for (const built_engine& each : built) {
      if (each.name == nullptr) continue;
      if (!has(each.feature)) {
        left_out.emplace_back(each.name);
      } else if (wanted(each.name)) {
        runnable.push_back({each.name, load(each)});
      }
    }
    if (runnable.empty()) {
      std::cerr << "no engine is called " << only << std::endl;
      std::exit(1);
    }
  }
};

const all_engines& all() {
  static const all_engines once;
  return once;
}

std::size_t run = 0;
const named_engine* current = nullptr;

/// Small blocks make long sequences slow, and the tree under AddressSanitizer, whose sizes they have, runs all cases.
int runs_of_engines() {
  const auto& engines = all().runnable;
  const bool without_last = engines.size() > 1 && engines.back().name == "blocks";
  return static_cast<int>(engines.size()) - (without_last ? 1 : 0);
}

}  // namespace

const std::vector<named_engine>& engines() {
  return all().runnable;
}

const std::vector<std::string>& engines_left_out() {
  return all().left_out;
}

const named_engine& current_engine() {
  return current != nullptr ? *current : engines().front();
}

bool first_run() {
  return run == 0;
}

with_engine::with_engine(const named_engine& chosen) : before_(current) {
  current = &chosen;
}
with_engine::~with_engine() {
  current = before_;
}

bool serves(dtype type) {
  const engine& e = *current_engine().functions;
  switch (type) {
    case dtype::f64: return e.f64 != nullptr;
    case dtype::f16: return e.f16 != nullptr;
    case dtype::bf16: return e.bf16 != nullptr;
    default: return e.f32 != nullptr;
  }
}

}  // namespace aft::test

// What main.cpp repeats the test cases for, in programs that have a harness.
extern "C" {
int aft_test_runs();
int aft_test_runs() {
  return aft::test::runs_of_engines() + static_cast<int>(aft::test::places().size()) - 1;
}
const char* aft_test_begin_run(int number);
const char* aft_test_begin_run(int number) {
  using namespace aft::test;
  const int beyond = number - runs_of_engines();
  run = beyond < 0 ? static_cast<std::size_t>(number) : 0;
  current = &engines()[run];
  begin_run_on(places()[beyond < 0 ? 0 : static_cast<std::size_t>(beyond) + 1]);
  static std::string name;
  name = on_device() ? name_of(current_place()) : current->name;
  return name.c_str();
}
// Whether the case runs again with this engine. Of those beside the first each case takes every second one, as each
// call does that is compared with the reference (harness.cpp); a program that is started by hand, for all cases, takes
// all.
bool aft_test_repeats(int number, const char* test_case);
bool aft_test_repeats([[maybe_unused]] int number, [[maybe_unused]] const char* test_case) {
#if defined(AFT_TEST_FULL)
  return true;
#else
  if (number >= aft::test::runs_of_engines()) return true;
  int turn = number;
  for (const char* at = test_case; *at != '\0'; ++at) turn += *at;
  return *test_case == '\0' || turn % 2 == 0;
#endif
}
}
