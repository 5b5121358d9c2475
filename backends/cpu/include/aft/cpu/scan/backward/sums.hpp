// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/sums.hpp  A and B of the backward scan: what is kept of the rows that came by, and how two parts
/// join.
#pragma once

#include "../plan.hpp"
#include "../reference.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// A and B of every lane in the lane's reference, A also divided by 2^value_shift(g_peak), B by that and
/// 2^value_shift(o_peak).
template <class C>
struct reverse_lanes {
  static constexpr index_t arrays = 7;
  C* base = nullptr;
  C* exponent = nullptr;
  C* centre = nullptr;
  C* g_peak = nullptr;
  C* o_peak = nullptr;
  C* a = nullptr;
  C* b = nullptr;

  reverse_lanes() = default;
  reverse_lanes(C* at, index_t width) { cut_arrays(at, width, {&base, &exponent, &centre, &g_peak, &o_peak, &a, &b}); }

  reference<C> in(index_t l) const { return {load(base + l), load(exponent + l)}; }

  /// Of `centre` too, which every chunk chooses for itself before its rows come.
  void clear(index_t width) const {
    for (index_t l = 0; l < width; ++l) {
      base[l] = centre[l] = g_peak[l] = o_peak[l] = a[l] = b[l] = C(0);
      exponent[l] = empty_exponent<C>;
    }
  }
};

/// How a chunk's own sums and those after it make a key's: A = a a_unit + a_after, B = b b_unit + a cross + b_after.
template <class C>
struct reverse_view {
  static constexpr index_t arrays = 12;
  C* limit = nullptr;  ///< rows whose power is up to it, with ordinary g and o, need no change of reference
  C* a_unit = nullptr;
  C* b_unit = nullptr;
  C* cross = nullptr;
  C* a_after = nullptr;
  C* b_after = nullptr;
  C* base = nullptr;
  C* centre = nullptr;
  C* a_power = nullptr;  ///< dv = e^k A 2^a_power
  C* b_power = nullptr;
  C* weight = nullptr;         ///< of every row, where all are the same
  C* ordinary_size = nullptr;  ///< keys of this size and below are for emit_ordinary_keys

  reverse_view() = default;
  reverse_view(C* at, index_t width) {
    cut_arrays(at, width,
               {&limit, &a_unit, &b_unit, &cross, &a_after, &b_after, &base, &centre, &a_power, &b_power, &weight,
                &ordinary_size});
  }
};

/// Both sums in their common reference, with a common centre.
template <class C>
struct reverse_join {
  joined<C> references;
  vec<C> centre, g_peak, o_peak, g_shift, o_shift;
  vec<C> a_first, a_second, b_first, b_second;
  vec<C> first_off, second_off;  ///< each centre's distance from the common one
};

template <class C>
inline reverse_join<C> join_reverse(const reverse_lanes<C>& x, const reverse_lanes<C>& y, index_t l) {
  reverse_join<C> out;
  const vec<C> empty(empty_exponent<C>);
  out.references = join<C>(x.in(l), y.in(l));
  const vec<C> cx = load(x.centre + l);
  const vec<C> cy = load(y.centre + l);
  const auto take_x =
      (load(y.exponent + l) == empty) | ((load(x.exponent + l) != empty) & ((xsimd::abs)(cx) < (xsimd::abs)(cy)));
  out.centre = xsimd::select(take_x, cx, cy);
  const vec<C> gx = load(x.g_peak + l);
  const vec<C> gy = load(y.g_peak + l);
  const vec<C> ox = load(x.o_peak + l);
  const vec<C> oy = load(y.o_peak + l);
  out.g_peak = max_ignoring_nan<C>(gx, gy);
  out.o_peak = max_ignoring_nan<C>(ox, oy);
  out.g_shift = value_shift<C>(out.g_peak);
  out.o_shift = value_shift<C>(out.o_peak);
  // A sum of zeros has no shift of its own: a factor for it could be infinite.
  const auto apart = [](const vec<C>& peak, const vec<C>& shift) {
    const vec<C> zero(C(0));
    return xsimd::select(peak == zero, zero, value_shift<C>(peak) - shift);
  };
  out.a_first = times_pow2<C>(out.references.first, apart(gx, out.g_shift));
  out.a_second = times_pow2<C>(out.references.second, apart(gy, out.g_shift));
  out.b_first = times_pow2<C>(out.a_first, apart(ox, out.o_shift));
  out.b_second = times_pow2<C>(out.a_second, apart(oy, out.o_shift));
  const vec<C> c = times_pow2<C>(out.centre, -out.o_shift);
  out.first_off = times_pow2<C>(cx, -out.o_shift) - c;
  out.second_off = times_pow2<C>(cy, -out.o_shift) - c;
  return out;
}

/// after += chunk.
template <class C>
inline void merge_reverse(const reverse_lanes<C>& after, const reverse_lanes<C>& chunk, index_t width) {
  for (index_t l = 0; l < width; l += lanes<C>) {
    const reverse_join<C> j = join_reverse<C>(after, chunk, l);
    const vec<C> a1 = load(after.a + l) * j.a_first;
    const vec<C> a2 = load(chunk.a + l) * j.a_second;
    const vec<C> b1 = mul_add(j.first_off, a1, load(after.b + l) * j.b_first);
    store(after.b + l, mul_add(load(chunk.b + l), j.b_second, mul_add(j.second_off, a2, b1)));
    store(after.a + l, a1 + a2);
    store(after.base + l, j.references.common.base);
    store(after.exponent + l, j.references.common.exponent);
    store(after.centre + l, j.centre);
    store(after.g_peak + l, j.g_peak);
    store(after.o_peak + l, j.o_peak);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
