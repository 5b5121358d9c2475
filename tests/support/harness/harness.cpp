// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>

#include "call/sequences.hpp"
#include "engines/engines.hpp"
#include "engines/turns.hpp"
#include "typed_functions.hpp"

#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
#include <device_emulator.hpp>
#include <warpgroup.hpp>
#endif

namespace aft::test {

namespace {

/// Of the current engine. One that serves some types alone leaves the others to the program's own.
const typed_functions& functions_of(dtype type) {
  const engine& e = *(serves(type) ? current_engine() : engines().front()).functions;
  switch (type) {
    case dtype::f64: return *e.f64;
    case dtype::f16: return *e.f16;
    case dtype::bf16: return *e.bf16;
    default: return *e.f32;
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

ran_on backend_of(const any_executor& exec) {
  if (std::holds_alternative<cpu>(exec)) return ran_on::cpu;
#if defined(AFT_TEST_ON_GPU)
  return ran_on::gpu;
#else
  return ran_on::emulated_device;
#endif
}

std::string name_of_executor(const any_executor& exec) {
  const cpu* host = std::get_if<cpu>(&exec);
  if (host == nullptr) return name_of(current_place());
  return current_engine().name + (host->threads == 1 ? ", one thread" : ", several threads");
}

}  // namespace

any_executor default_executor() {
#if defined(AFT_TEST_DEVICE)
  if (on_device()) return cuda{};
#endif
  return cpu{.threads = 1};
}

std::vector<any_executor> executors() {
  if (on_device()) return {default_executor()};
  return {cpu{.threads = 1}, cpu{.threads = 3}};
}

std::vector<any_executor> equivalent_executors() {
  // The emulator goes on with its random numbers, so each of these runs has another order.
#if defined(AFT_TEST_WATCHED)
  if (on_device()) return {default_executor()};
#endif
  if (on_device()) return {default_executor(), default_executor(), default_executor()};
#if defined(AFT_TEST_WATCHED)
  return {cpu{.threads = 1}, cpu{.threads = 3}, cpu{.threads = 7}};
#endif
  return {cpu{.threads = 1}, cpu{.threads = 2}, cpu{.threads = 3}, cpu{.threads = 4}, cpu{.threads = 7}};
}

void expect_within(dtype type, const setup& s, const results& got, const oracle_result& oracle, std::string_view note) {
  const judgement seen = judge(type, s, got, oracle);
  const bool right = seen.wrong == 0;
  CHECK_MESSAGE(right, seen.words, describe(completed(s), type), ' ', note);
  // Only what was compared: calls that were meant to fail, or have no query, say nothing.
  const bool backward = !got.dk.empty();
  if (right && !got.failed && (backward || !got.y.empty())) record_call(type, s, got.backend, backward);
}

namespace {

/// Whether the device may take the bfloat16 product, as far as types and shapes say.
bool multiplies_on_device(dtype type, const setup& s) {
  if (type != dtype::bf16 || s.call == op::simple) return false;
  bool forced = false;
#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
  forced = emulator::product_forced();
#endif
  const setup whole = completed(s);
  constexpr index_t least_channels = 16, least_keys = 64;
  return forced || (whole.heads() > 0 && whole.d / whole.heads() >= least_channels && whole.Tk >= least_keys);
}

}  // namespace

long double pair_error(dtype type, const setup& s) {
  if (!on_device()) return may_multiply_pairs(s) ? functions_of(type).pair_error : 0;
  if (s.arithmetic == arithmetic::full || !multiplies_on_device(type, s)) return 0;
  // A tensor core cuts: num and den lose up to 22 2^-24 with each 16 keys (docs/cuda.md).
  const index_t steps = completed(s).Tk / 16 + 1;
  return pair_rounding + 2 * 22 * 0x1p-24L * static_cast<long double>(steps);
}

long double pair_gradient_error(dtype type, const setup& s) {
  if (!on_device()) return may_multiply_gradient_pairs(s) ? functions_of(type).pair_error : 0;
  if (s.arithmetic == arithmetic::full || !multiplies_on_device(type, s)) return 0;
  return 8 * 0x1p-8L;
}

void allow_products(dtype type, const setup& s, oracle_result& backward) {
  backward.pair_error = pair_gradient_error(type, s);
  backward.bias_error = on_device() ? 0 : backward.pair_error;
}

results run_forward(dtype type, const setup& s, const numbers& x, const any_executor& exec) {
  results out = functions_of(type).run_forward(s, x, exec);
  out.backend = backend_of(exec);
  return out;
}

results run_backward(dtype type, const setup& s, const numbers& x, const any_executor& exec, const results* saved) {
  results out = functions_of(type).run_backward(s, x, exec, saved);
  out.backend = backend_of(exec);
  return out;
}

namespace {

/// The reference knows one sequence a batch element, so a packed call is many of its calls.
template <class Evaluate>
oracle_result evaluate_sequences(const setup& raw, const numbers& x, bool backward, Evaluate evaluate) {
  const setup s = completed(raw);
  std::vector<oracle_result> all;
  for (std::size_t n = 0; n < s.packed.size(); ++n) {
    const auto at = static_cast<index_t>(n);
    all.push_back(evaluate(sequence_setup(s, at), sequence_numbers(s, x, at)));
  }
  return join_oracles(s, all, backward);
}

}  // namespace

oracle_result evaluate_forward(dtype type, const setup& s, const numbers& x) {
  const auto evaluate = oracle_of(type).evaluate_forward;
  return s.packed.empty() ? evaluate(s, x) : evaluate_sequences(s, x, false, evaluate);
}

oracle_result evaluate_backward(dtype type, const setup& s, const numbers& x) {
  const auto evaluate = oracle_of(type).evaluate_backward;
  return s.packed.empty() ? evaluate(s, x) : evaluate_sequences(s, x, true, evaluate);
}

bool watched() {
#if defined(AFT_TEST_WATCHED)
  return true;
#else
  return false;
#endif
}

namespace {

/// Runs call(executor), and looks at what it wrote beside its results. Calls take turns with one thread and several.
template <class F>
void expect_no_damage(dtype type, const setup& s, F call) {
  const auto all = executors();
  const std::size_t turn = mixed(s) >> 59 & 1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all_take_part && i % 2 != turn && all.size() > 1) continue;
    const auto& exec = all[i];
    const results got = call(exec);
    CHECK_MESSAGE(got.damage.empty(), got.damage, '\n', describe(completed(s), type), ' ', name_of_executor(exec));
  }
}

}  // namespace

namespace {

/// Of engines beside the first, with several threads alone: that one thread gives the same bits is asked of each, by
/// the tests of determinism among others.
std::vector<any_executor> executors_to_compare() {
  if (on_device() || &current_engine() == &engines().front()) return executors();
  return {executors().back()};
}

}  // namespace

namespace {

/// A call in one direction: how the library is asked for it, how the reference is, and what products may add.
struct direction {
  bool backward;
  results (*run)(dtype, const setup&, const numbers&, const any_executor&);
  oracle_result (*evaluate)(dtype, const setup&, const numbers&);
  void (*allow)(dtype, const setup&, oracle_result&);
};
constexpr direction forward{
    false, run_forward, evaluate_forward,
    [](dtype type, const setup& s, oracle_result& oracle) { oracle.pair_error = pair_error(type, s); }};
constexpr direction backward{true,
                             [](dtype type, const setup& s, const numbers& x, const any_executor& exec) {
                               return run_backward(type, s, x, exec);
                             },
                             evaluate_backward, allow_products};

/// In the current place, by all of its engines and executors.
void compare(const direction& way, dtype type, const setup& s, const numbers& x, const oracle_result& oracle) {
  for_each_engine(type, [&] {
    if (!engine_takes_part(type, s)) return;
    auto allowed = oracle;
    way.allow(type, s, allowed);
    for (const auto& exec : executors_to_compare())
      expect_within(type, s, way.run(type, s, x, exec), allowed, name_of_executor(exec));
  });
}

/// In all of these places that the call concerns. The reference is evaluated once for all.
void check_in(const std::vector<place>& where, const direction& way, dtype type, const setup& s, const numbers& x) {
  if (where.empty() || !first_run()) return;
  std::vector<place> left;
  // A program of one place meets no call again, and the numbers of a call are long.
  const std::uint64_t number = places().size() > 1 ? number_of(type, s, x, way.backward) : 0;
  for (const place each : where) {
    const with_place now(each);
    if (concerns(type, s) && (places().size() == 1 || !visited(each, number))) left.push_back(each);
  }
  if (left.empty()) return;
  std::optional<oracle_result> oracle;
  if (!watched()) oracle = way.evaluate(type, s, x);
  for (const place each : left) {
    const bool ahead = each != current_place();
    const with_place now(each);
    if (ahead) note_visit(each, number);
    if (oracle) {
      compare(way, type, s, x, *oracle);
    } else {
      expect_no_damage(type, s, [&](const auto& exec) { return way.run(type, s, x, exec); });
    }
  }
}

/// The current place and those that its run visits.
std::vector<place> all_visited() {
  std::vector<place> all = places_beside();
  all.insert(all.begin(), current_place());
  return all;
}

}  // namespace

void check_forward(dtype type, const setup& s, const numbers& x) {
  check_in(all_visited(), forward, type, s, x);
}

void check_backward(dtype type, const setup& s, const numbers& x) {
  check_in(all_visited(), backward, type, s, x);
}

void check(const setup& s) {
  const numbers x = random_numbers(s);
  for (dtype type : all_types) {
    std::vector<place> turns;
    for (const place each : all_visited()) {
      const with_place now(each);
      if (is_its_turn(type, s)) turns.push_back(each);
    }
    check_in(turns, forward, type, s, x);
    if (s.cuts.empty()) check_in(turns, backward, type, s, x);
  }
}

std::string first_difference(const results& a, const results& b) {
  for (const results* r : {&a, &b})
    if (!r->damage.empty()) return "written though it should not have been: " + r->damage;
  for (const part& p : parts) {
    const auto& left = a.*p.values;
    const auto& right = b.*p.values;
    if (left.size() != right.size()) return std::string(p.name) + " differs in size";
    for (std::size_t i = 0; i < left.size(); ++i) {
      const bool same = std::isnan(left[i]) ? std::isnan(right[i])
                                            : left[i] == right[i] && std::signbit(left[i]) == std::signbit(right[i]);
      if (same) continue;
      std::ostringstream out;
      out.precision(20);
      out << p.name << '[' << i << "]: " << left[i] << " and " << right[i];
      return out.str();
    }
  }
  return {};
}

}  // namespace aft::test
