// SPDX-License-Identifier: Apache-2.0
/// @file conformance.cpp  Every operator, forward and backward, in every type, on whatever it is compiled for.
///
///     c++ -std=c++20 -O1 -I include -I backends/cpu/include -I tests -I tests/support tests/targets/conformance.cpp
///
/// A cross compiler and an emulator are all that it takes: no test framework, no threads, no files. It is one file, for
/// the headers take longer to read than the rest to compile. The last line is `N comparisons, M wrong`; a comparison is
/// one tensor of one call against the reference, by the tests' own rule (tests/support/harness/tolerance.hpp).
/// Each tensor is judged once more with one element moved, and has to be wrong then: `N comparisons with a mistake, M
/// wrong`.
#include <cstdio>
#include <exception>

// NOLINTBEGIN(bugprone-suspicious-include): what the tests' harness links, without its test framework
#include "support/call/setup.cpp"
#include "support/harness/harness_bf16.cpp"
#include "support/harness/harness_f16.cpp"
#include "support/harness/harness_f32.cpp"
#include "support/harness/harness_f64.cpp"
#include "support/harness/judgement.cpp"
#include "support/harness/oracle.cpp"
#include "support/harness/tolerance.cpp"
#include "support/engines/engine_f32.cpp"
#include "support/engines/engine_f64.cpp"
// NOLINTEND(bugprone-suspicious-include)

#include "support/call/cases.hpp"

namespace aft::test {

any_executor default_executor() {
  return cpu{.threads = 1};
}

namespace {

/// Options that meet in ever other ways as the number goes up.
setup with_options(setup s, int number) {
  auto choose = [left = static_cast<unsigned>(number) * 2654435761u](unsigned count) mutable {
    const unsigned chosen = (left >> 8) % count;
    left = left * 1664525u + 1013904223u;
    return chosen;
  };
  s.seed = static_cast<unsigned>(number) + 1;
  s.gate_fn = static_cast<gate>(choose(6));
  s.mask = choose(2) == 0 ? mask_form::none : static_cast<mask_form>(choose(7));
  s.lengths = choose(3) == 0;
  s.query_lengths = choose(3) == 0;
  s.narrow_integers = choose(2) == 0;
  s.save = choose(3) != 0;
  s.narrow_average = choose(2) == 0;
  // Only inputs may be read with a stride of 0.
  constexpr layout forms[] = {layout::row_major, layout::padded,      layout::channels_first, layout::misaligned,
                              layout::reversed,  layout::interleaved, layout::time_first,     layout::broadcast};
  s.inputs = forms[choose(8)];
  s.outputs = forms[choose(7)];
  if (s.grid.size() == 1 && s.call != op::full) s.first_query = choose(4);
  return s;
}

/// Odd sizes: some channels beside whole vectors, some rows beside whole tiles, whatever their size.
std::vector<setup> every_call() {
  std::vector<setup> all;
  for (bool causal : {false, true}) {
    for (const setup& s : every_operator(causal)) {
      all.push_back(s);
      all.push_back(with_options(s, static_cast<int>(all.size())));
      // Queries and keys of different numbers.
      setup other = with_options(s, static_cast<int>(all.size()));
      other.Tq = other.queries = 15;
      if (s.grid.size() < 2) all.push_back(other);
      // Several tiles each way, and two groups of keys where a sequence goes by parts.
      setup larger = s;
      larger.B = 1;
      larger.H = s.hk == 6 ? 2 : 1;
      larger.d = larger.hk = 2 * 13;
      larger.Tq = larger.Tk = 29;
      larger.grid = s.grid.size() == 2 ? std::vector<index_t>{5, 7} : std::vector<index_t>{29};
      larger.save = false;
      if (!causal || s.hk == 6) all.push_back(larger);
      setup least = s;
      least.B = least.Tq = least.Tk = least.d = least.hk = least.H = 1;
      least.grid.assign(s.grid.size(), 1);
      if (s.hk == 6) all.push_back(least);
    }
  }
  return all;
}

const typed_functions& functions_of(dtype type) {
  switch (type) {
    case dtype::f64: return functions_f64;
    case dtype::f16: return functions_f16;
    case dtype::bf16: return functions_bf16;
    default: return functions_f32;
  }
}

const typed_oracle& oracle_of(dtype type) {
  switch (type) {
    case dtype::f64: return oracle_f64;
    case dtype::f16: return oracle_f16;
    case dtype::bf16: return oracle_bf16;
    default: return oracle_f32;
  }
}

/// What a wrong kernel would do, to a number of each tensor.
void plant(results& got) {
  for (const part& p : parts) {
    auto& values = got.*p.values;
    if (!values.empty()) values[values.size() / 2] += 64 + std::abs(values[values.size() / 2]);
  }
}

void add(judgement& sum, const judgement& one, dtype type, const setup& s, const char* direction) {
  sum.compared += one.compared;
  sum.wrong += one.wrong;
  if (one.wrong > 0 && sum.wrong <= 20)
    std::printf("%s%s, %s\n", one.words.c_str(), describe(completed(s), type).c_str(), direction);
}

/// The results as they came, and as a wrong kernel would have made them: what is compared costs far more than
/// comparing.
struct verdicts {
  judgement sum, planted;

  void add_both(dtype type, const setup& s, results got, const oracle_result& oracle, const char* direction) {
    add(sum, judge(type, s, got, oracle), type, s, direction);
    plant(got);
    const judgement moved = judge(type, s, got, oracle);
    planted.compared += moved.compared;
    planted.wrong += moved.wrong;
  }
};

int run() {
  verdicts all;
  for (const setup& s : every_call()) {
    const numbers x = random_numbers(s);
    for (dtype type : all_types) {
      const typed_functions& library = functions_of(type);
      oracle_result oracle = oracle_of(type).evaluate_forward(s, x);
      if (may_multiply_pairs(s)) oracle.pair_error = library.pair_error;
      all.add_both(type, s, library.run_forward(s, x, default_executor()), oracle, "forward");
      oracle = oracle_of(type).evaluate_backward(s, x);
      if (may_multiply_gradient_pairs(s)) oracle.pair_error = oracle.bias_error = library.pair_error;
      all.add_both(type, s, library.run_backward(s, x, default_executor(), nullptr), oracle, "backward");
    }
  }
  const auto& [sum, planted] = all;
  std::printf("%d comparisons with a mistake, %d wrong\n", planted.compared, planted.wrong);
  std::printf("%d comparisons, %d wrong\n", sum.compared, sum.wrong);
  const bool bites = planted.compared == sum.compared && planted.wrong == planted.compared;
  return bites && sum.compared > 0 && sum.wrong == 0 ? 0 : 1;
}

}  // namespace

}  // namespace aft::test

int main() {
  std::printf("%s\n", aft::build_info());
  try {
    return aft::test::run();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
