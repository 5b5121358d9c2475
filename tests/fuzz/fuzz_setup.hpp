// SPDX-License-Identifier: Apache-2.0
/// @file fuzz_setup.hpp  Reads a call of the test harness out of arbitrary bytes. Every input is a valid call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "call/setup.hpp"

namespace fuzz {

using aft::index_t;

struct call {
  aft::test::setup shape;
  aft::test::numbers values;
  aft::dtype type = aft::dtype::f32;
  bool backward = false;
};

/// Takes bytes from the front; an exhausted input reads as zeros, so that short inputs are small calls.
class byte_reader {
 public:
  byte_reader(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  unsigned byte() { return at_ < size_ ? data_[at_++] : 0u; }
  /// A value in [low, high].
  index_t in(index_t low, index_t high) { return low + static_cast<index_t>(byte()) % (high - low + 1); }
  bool flag() { return (byte() & 1u) != 0; }
  template <class T, std::size_t N>
  const T& of(const T (&choices)[N]) {
    return choices[byte() % N];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// A divisor of n, for heads and key channels.
inline index_t divisor(byte_reader& in, index_t n) {
  index_t d = in.in(1, n > 0 ? n : 1);
  while (n > 0 && n % d != 0) --d;
  return d;
}

/// Mostly a few keys; at times enough to cross tiles and vector widths.
inline index_t length(byte_reader& in) {
  return in.byte() % 4 == 0 ? in.in(0, 150) : in.in(0, 19);
}

/// The sequences of a packed call, and what it has in place of masks and lengths.
inline void read_sequences(byte_reader& in, aft::test::setup& s) {
  const index_t count = in.in(1, 6);
  for (index_t n = 0; n < count; ++n) s.packed.push_back(in.in(0, 19));
  if (in.flag()) s.packed[static_cast<std::size_t>(in.in(0, count - 1))] = in.in(0, 150);
  if (in.flag())
    for (index_t n = 0; n < count; ++n) s.packed_keys.push_back(in.in(0, 25));
  s.spare = in.in(0, 3);
  s.first_query = in.flag() ? in.in(0, 30) : 0;
  s.mask = aft::test::mask_form::none;
  s.lengths = s.query_lengths = false;
  // What repeats one row of a packed call repeats another one in the call on a sequence alone, which the oracle is of.
  if (s.inputs == aft::test::layout::broadcast) s.inputs = aft::test::layout::padded;
}

/// A causal call as calls that go on from slots, with all that streams take.
inline void read_cuts(byte_reader& in, aft::test::setup& s) {
  s.causal = true;
  s.mask = aft::test::mask_form::none;
  s.lengths = false;
  s.interrupted = in.flag();
  index_t left = s.call == aft::test::op::conv ? s.grid[0] : s.Tk;
  s.Tq = left;
  const index_t most = in.in(1, 80);
  for (; left > 0; left -= s.cuts.back()) s.cuts.push_back(in.in(1, left < most ? left : most));
}

inline aft::test::setup read_shape(byte_reader& in) {
  using namespace aft::test;
  constexpr double scales[] = {1, 1, 0, 10, 50, 200};
  constexpr bias_form forms[] = {bias_form::dense_tt,         bias_form::dense_htt,     bias_form::dense_bhtt,
                                 bias_form::dense_1htt,       bias_form::factorized_tn, bias_form::factorized_htn,
                                 bias_form::factorized_mixed, bias_form::banded_tj,     bias_form::banded_htj};
  constexpr layout layouts[] = {layout::row_major, layout::padded,      layout::channels_first, layout::misaligned,
                                layout::reversed,  layout::interleaved, layout::broadcast,      layout::time_first};
  setup s;
  s.call = static_cast<op>(in.in(0, 3));
  const unsigned batch = in.byte();
  s.B = batch % 4;
  s.d = in.byte() % 4 == 0 ? in.in(0, 40) : in.in(1, 9);
  s.H = divisor(in, s.d);
  // hk = 0 asks for as many key channels as value channels, the only number that 0 channels have.
  s.hk = in.flag() || s.d == 0 ? 0 : divisor(in, s.d);
  s.Tq = length(in);
  s.Tk = s.call == op::local || in.flag() ? s.Tq : length(in);
  s.n = in.in(0, 5);
  s.bias = s.call == op::local ? in.of(forms) : forms[in.in(0, 6)];
  // Windows from none at all to beyond the sequence.
  s.win = in.flag() ? aft::window::strict(in.in(0, 25)) : aft::window{in.in(0, 25), in.in(0, 25)};
  if (s.call == op::conv) {
    const index_t axes = in.in(1, 3);
    constexpr index_t longest[] = {150, 12, 5};
    for (index_t i = 0; i < axes; ++i) {
      s.grid.push_back(in.in(0, longest[axes - 1]));
      s.taps.push_back(in.in(1, axes == 1 ? 20 : 6));
    }
  }
  s.causal = in.flag();
  s.mask = static_cast<mask_form>(in.byte() % 2 == 0 ? 0 : in.in(0, 4));
  s.lengths = in.byte() % 4 == 0;
  s.outside = in.byte() % 4 == 1 ? aft::outside::excluded : aft::outside::zero_bias;
  s.gate_fn = static_cast<aft::gate>(in.in(0, 5));
  s.inputs = in.of(layouts);
  s.outputs = layouts[in.in(0, 5)];
  s.q_scale = in.of(scales);
  s.k_scale = in.of(scales);
  s.v_scale = in.of(scales);
  s.w_scale = in.of(scales);
  s.seed = in.byte();
  // A bias of the same numbers, and as above no byte of its own: written inputs keep their meaning.
  s.generated = s.dense() && s.seed % 4 == 3;
  s.save = in.flag();
  s.narrow_average = in.flag();
  // The bits of one byte, so that inputs that were written down before keep their meaning.
  const unsigned more = in.byte();
  s.in_place = more % 4 == 1;
  s.query_lengths = (more >> 2) % 4 == 1;
  s.narrow_integers = (more & 16u) != 0;
  const bool moved = (more >> 5) % 4 == 1 && s.grid.size() <= 1;
  if ((more & 128u) != 0 && s.mask == mask_form::batch_pairs) s.mask = mask_form::flat_pairs;
  // Numbers that no input has which was written down before there were packed calls, or streams.
  if (batch >= 225 && batch <= 240 && s.grid.size() <= 1) {
    read_sequences(in, s);
    return s;
  }
  if (batch >= 241 && batch <= 252 && s.grid.size() <= 1 && s.d > 0) {
    read_cuts(in, s);
    return s;
  }
  if (!moved) return s;
  s.first_query = in.flag() ? in.in(0, 30) : in.in(0, 160);
  if (s.call == op::local) s.Tk = length(in);
  if (s.call == op::conv) s.queries = length(in);
  return s;
}

/// Puts special values at places of their own into the random numbers.
inline void place_special(byte_reader& in, call& c) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  // What hides, what propagates, and the arguments around which exponentials overflow and vanish in each type.
  constexpr double exponents[] = {-infinity, -infinity, infinity, nan,  0.0, -0.0, 60,   -60,
                                  88.5,      -103,      700,      -745, 3e4, -3e4, 5000, -5000};
  // Gates are limits of formulas at infinity, which the reference's formulas do not take.
  constexpr double gates[] = {nan, 0.0, -0.0, 88.5, -103, 700, -745, 5000, -5000, 1e-40};
  constexpr double values[] = {infinity, -infinity, nan, 0.0, -0.0, 1e-40, 1e-310, 3e4, -3e4, 1e15};
  // Averages of the largest numbers are promised; products of them with a gradient overflow in any evaluation.
  constexpr double large[] = {3e38, -3e38, 1e300, -1e300};
  auto& x = c.values;
  std::vector<double>* const targets[] = {&x.k, &x.w, &x.v, &x.u, &x.f, &x.r, &x.q, &x.dy};
  while (!in.empty()) {
    std::vector<double>& target = *in.of(targets);
    const auto place = (static_cast<std::size_t>(in.byte()) << 8) | in.byte();
    // A run of equal values makes whole rows or heads special, which single ones never do.
    const auto run = static_cast<std::size_t>(in.byte() % 8 == 0 ? in.in(1, 64) : 1);
    double value = 0;
    if (&target == &x.q) {
      value = in.of(gates);
    } else if (&target == &x.v || &target == &x.dy) {
      value = &target == &x.v && !c.backward && in.byte() % 4 == 0 ? in.of(large) : in.of(values);
    } else {
      value = in.of(exponents);
    }
    for (std::size_t i = 0; i < run && !target.empty(); ++i) target[(place + i) % target.size()] = value;
  }
}

inline call make_call(const std::uint8_t* data, std::size_t size) {
  byte_reader in(data, size);
  call c;
  c.type = in.of(aft::test::all_types);
  c.backward = in.flag();
  c.shape = read_shape(in);
  c.backward = c.backward && c.shape.cuts.empty();
  c.values = aft::test::random_numbers(c.shape);
  place_special(in, c);
  return c;
}

}  // namespace fuzz
