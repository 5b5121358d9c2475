// SPDX-License-Identifier: Apache-2.0
#include "turns.hpp"

#include <bit>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "engines.hpp"
#include "harness/harness.hpp"

#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
#include <device_emulator.hpp>
#include <warpgroup.hpp>
#endif

namespace aft::test {

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

namespace {

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

}  // namespace

bool engine_takes_part(dtype type, const setup& s) {
  const named_engine& current = current_engine();
  const std::size_t number = static_cast<std::size_t>(&current - engines().data());
  if (all_take_part || number == 0 || pair_error(type, s) > 0) return true;
  return ((mixed(s) >> 61) + number) % 2 == 0;
}

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

namespace {

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;  // clang++ 14 deduces no aggregate

}  // namespace

// The binding names every member, so that one that is added has to be named here too.
std::uint64_t number_of(dtype type, const setup& s, const numbers& x, bool backward) {
  std::uint64_t all = 0xcbf29ce484222325u;
  const auto mix = [&](std::uint64_t one) {
    all = (all ^ one) * 0x9e3779b97f4a7c15u;
    all ^= all >> 32;
  };
  const auto add = overloaded{
      [&](double one) { mix(std::bit_cast<std::uint64_t>(one)); },
      [&](const window& w) {
        mix(static_cast<std::uint64_t>(w.before));
        mix(static_cast<std::uint64_t>(w.after));
      },
      [&]<class T>(const std::vector<T>& many) {
        mix(many.size());
        for (const T one : many) {
          if constexpr (std::is_same_v<T, double>) {
            mix(std::bit_cast<std::uint64_t>(one));
          } else {
            mix(static_cast<std::uint64_t>(one));
          }
        }
      },
      [&](auto one) { mix(static_cast<std::uint64_t>(one)); },
  };
  add(type);
  add(backward);
  const auto& [call, B, Tq, Tk, d, hk, H, bias, n, win, grid, taps, queries, causal, mask, lengths, outside, gate_fn,
               inputs, outputs, q_scale, k_scale, v_scale, w_scale, seed, save, narrow_average, in_place, first_query,
               query_lengths, narrow_integers, arithmetic, packed, packed_keys, spare, cuts, interrupted, generated] =
      s;
  const auto add_all = [&](const auto&... each) { (add(each), ...); };
  add_all(call, B, Tq, Tk, d, hk, H, bias, n, win, grid, taps, queries, causal, mask, lengths, outside, gate_fn, inputs,
          outputs, q_scale, k_scale, v_scale, w_scale, seed, save, narrow_average, in_place, first_query, query_lengths,
          narrow_integers, arithmetic, packed, packed_keys, spare, cuts, interrupted, generated);
  const auto& [q, k, v, dy, w, u, f, r, hidden, key_counts, query_counts] = x;
  add_all(q, k, v, dy, w, u, f, r, hidden, key_counts, query_counts);
  return all;
}

}  // namespace aft::test
