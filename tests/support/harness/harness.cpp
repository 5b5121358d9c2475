// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "call/sequences.hpp"
#include "engines/engines.hpp"
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

std::string name_of(const any_executor& exec) {
  const cpu* host = std::get_if<cpu>(&exec);
  if (host == nullptr) return "emulated device";
  return current_engine().name + (host->threads == 1 ? ", one thread" : ", several threads");
}

}  // namespace

bool on_device() {
#if defined(AFT_TEST_DEVICE)
  static const bool chosen = std::getenv("AFT_TEST_ON_DEVICE") != nullptr;
  return chosen;
#else
  return false;
#endif
}

namespace {

/// A number that differs between calls of a test, of all that tells them apart.
std::uint64_t mixed(const setup& s) {
  std::uint64_t all = 0;
  const auto mix = [&](auto x) { all = (all + static_cast<std::uint64_t>(x)) * 0x9e3779b97f4a7c15u; };
  for (index_t n : {s.B, s.Tq, s.Tk, s.d, s.hk, s.H, s.n, s.win.before, s.win.after}) mix(n);
  for (index_t n : s.grid) mix(n);
  for (index_t n : s.taps) mix(n);
  for (index_t n : s.packed) mix(n);
  mix(s.call);
  mix(s.bias);
  mix(s.mask);
  mix(s.gate_fn);
  mix(s.inputs);
  mix(s.outputs);
  mix(s.seed);
  for (double x : {s.q_scale, s.k_scale, s.v_scale, s.w_scale}) mix(std::bit_cast<std::uint64_t>(x));
  for (bool x : {s.causal, s.lengths, s.save, s.narrow_average, s.in_place, s.query_lengths, s.narrow_integers}) mix(x);
  mix(s.first_query);
  return all;
}

bool is_narrow(dtype type) {
  return type == dtype::f16 || type == dtype::bf16;
}

/// Whether a call is one for this type where one of each kind is enough: float or double, half or bfloat16.
bool has_turn(dtype type, const setup& s) {
  const std::uint64_t turn = mixed(s);
  switch (type) {
    case dtype::f16: return turn >> 63 == 0;
    case dtype::bf16: return turn >> 63 == 1;
    case dtype::f32: return (turn >> 62 & 1) == 0;
    default: return (turn >> 62 & 1) == 1;
  }
}

#if defined(AFT_TEST_FULL)
constexpr bool all_take_part = true;
#else
constexpr bool all_take_part = false;
#endif

/// Whether the record of what was compared is asked for: by all types, then.
bool records() {
  static const bool wanted = std::getenv("AFT_TEST_RECORD") != nullptr;
  return wanted;
}

/// Whether one of the engines takes products of bfloat16 numbers for this call, which no other type has.
bool some_engine_multiplies(const setup& s) {
  if (!may_multiply_pairs(s)) return false;
  for (const named_engine& each : engines()) {
    if (each.functions->bf16 != nullptr && each.functions->bf16->pair_error > 0) return true;
  }
  return false;
}

/// Whether the current engine is asked for this call. The program's own always is. Of the others each call takes every
/// second one, for they are the same functions by other flags or another compiler: a mistake that one of them has and
/// the program's own has not is one of many calls. One with products of its own is asked whenever it takes them.
bool engine_takes_part(dtype type, const setup& s) {
  const named_engine& current = current_engine();
  const std::size_t number = static_cast<std::size_t>(&current - engines().data());
  if (all_take_part || number == 0 || pair_error(type, s) > 0) return true;
  return ((mixed(s) >> 61) + number) % 2 == 0;
}

/// Whether a call that is tried with every type is this one's. Float and double are the same kernels with vectors of
/// another length, and what the emulated device runs takes a hundred times as long as a processor: there one type of
/// each kernel is enough. Only where all types are asked for, of which one is left; a test that names its types gets
/// those.
bool is_its_turn(dtype type, const setup& s) {
  if (all_take_part || records()) return true;
  if (!on_device()) return is_narrow(type) || has_turn(type, s);
#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
  const bool first = (mixed(s) >> 60) % 2 == 0;
  if (emulator::has_warpgroups()) return true;
  if (!emulator::product_forced()) return pair_error(type, s) > 0 || is_narrow(type) == first;
  if (type == dtype::f64) return false;
  const bool multiplies = first && pair_error(dtype::bf16, s) > 0;
  if (type == dtype::bf16) return multiplies;
  return !multiplies && is_narrow(type) == has_turn(dtype::f16, s);
#else
  return true;
#endif
}

}  // namespace

bool concerns(dtype type, const setup& s) {
  // There it is a dense one.
  if (on_device() && s.generates()) return false;
  static const bool quick = std::getenv("AFT_TEST_QUICK") != nullptr;
  if (quick && !has_turn(type, s)) return false;
  // On a processor half and bfloat16 are two ways to read and write the numbers of the same kernels for float. Where
  // addresses are watched and no numbers compared, double is another length of the same vectors.
  const bool asks_all = all_take_part || records() || on_device();
  const bool alternates = watched() || (is_narrow(type) && !some_engine_multiplies(s));
  if (!asks_all && alternates && !has_turn(type, s)) return false;
#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
  if (on_device() && emulator::has_warpgroups()) return pair_error(type, s) > 0;
  // A kernel's instructions are the same for float and double, and for half and bfloat16, all but the products of
  // bfloat16 numbers; and one by one they take a hundred times as long as a processor.
  const bool product = type == dtype::bf16 && pair_error(type, s) > 0;
  const bool alike = !product && (is_narrow(type) || !emulator::product_forced());
  if (on_device() && !all_take_part && !records() && alike && !has_turn(type, s)) return false;
  if (on_device() && emulator::product_forced()) {
    const bool pair_mask = s.pair_mask() && completed(s).Tq > 1;
    return type != dtype::f64 && s.call != op::simple && !pair_mask;
  }
#endif
  return true;
}

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
  if (!on_device()) return pair_error(type, s);
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
    CHECK_MESSAGE(got.damage.empty(), got.damage, '\n', describe(completed(s), type), ' ', name_of(exec));
  }
}

}  // namespace

namespace {

/// Of engines beside the first, with several threads alone: that one thread gives the same bits is asked of each, by
/// the tests of determinism among others.
std::vector<any_executor> executors_to_compare() {
  if (&current_engine() == &engines().front()) return executors();
  return {executors().back()};
}

}  // namespace

void check_forward(dtype type, const setup& s, const numbers& x) {
  if (!concerns(type, s) || !first_run()) return;
  if (watched()) return expect_no_damage(type, s, [&](const auto& exec) { return run_forward(type, s, x, exec); });
  const auto oracle = evaluate_forward(type, s, x);
  for_each_engine(type, [&] {
    if (!engine_takes_part(type, s)) return;
    auto allowed = oracle;
    allowed.pair_error = pair_error(type, s);
    for (const auto& exec : executors_to_compare())
      expect_within(type, s, run_forward(type, s, x, exec), allowed, name_of(exec));
  });
}

void check_backward(dtype type, const setup& s, const numbers& x) {
  if (!concerns(type, s) || !first_run()) return;
  if (watched()) return expect_no_damage(type, s, [&](const auto& exec) { return run_backward(type, s, x, exec); });
  const auto oracle = evaluate_backward(type, s, x);
  for_each_engine(type, [&] {
    if (!engine_takes_part(type, s)) return;
    auto allowed = oracle;
    allow_products(type, s, allowed);
    for (const auto& exec : executors_to_compare())
      expect_within(type, s, run_backward(type, s, x, exec), allowed, name_of(exec));
  });
}

void check(const setup& s) {
  const numbers x = random_numbers(s);
  for (dtype type : all_types) {
    if (!is_its_turn(type, s)) continue;
    check_forward(type, s, x);
    if (s.cuts.empty()) check_backward(type, s, x);
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
