// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/key_gradients.hpp  The gradients of keys that all rows see, from A and B alone.
#pragma once

#include <algorithm>

#include "kernel.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Says for which keys e^k may be multiplied by its power of two before A and B come: where no number on the way leaves
/// the normal range, so that the bits are the same.
template <class C>
inline void find_key_limits(const reverse_view<C>& view, index_t l) {
  const vec<C> zero(C(0));
  const vec<C> reach(exp_constants<C>::bias - C(7));
  const vec<C> room(C(30));
  const vec<C> a = load(view.a_after + l);
  const vec<C> b = load(view.b_after + l);
  const vec<C> power = load(view.a_power + l);
  const auto plain = (load(view.base + l) == zero) & (power == load(view.b_power + l)) &
                     ((xsimd::abs)(a) < vec<C>(scan_tuning<C>::value_high)) &
                     ((xsimd::abs)(b) < vec<C>(scan_tuning<C>::value_high)) &
                     ((a == zero) | ((xsimd::abs)(a) > vec<C>(exp_constants<C>::proof))) &
                     ((b == zero) | ((xsimd::abs)(b) > vec<C>(exp_constants<C>::proof)));
  const vec<C> low_a = xsimd::select(a == zero, zero, exponent_bits<C>((xsimd::abs)(a)));
  const vec<C> low_b = xsimd::select(b == zero, zero, exponent_bits<C>((xsimd::abs)(b)));
  const vec<C> low = min_ignoring_nan<C>(min_ignoring_nan<C>(low_a, low_b), zero);
  const vec<C> size = min_ignoring_nan<C>(room - power, reach + low + power) * vec<C>(C(0.6931));
  store(view.ordinary_size + l, xsimd::select(plain, size, vec<C>(-std::numeric_limits<C>::infinity())));
}

/// The gradients of whole panels of n keys from `at` on, up to the first column that is for emit_key; returns where it
/// stopped. For many panels, as fold_columns is.
template <class C, index_t rows, class T>
[[gnu::flatten, gnu::noinline]] panel_place emit_ordinary_keys(const reverse_view<C>& known,
                                                               const reverse_keys<C, T>& all, const segment& x,
                                                               index_t n, panel_place at) {
  const reverse_view<C> view = known;
  const index_t lane = x.lane, width = x.width, turn = turn_of<C>(x.width, all.uncached);
  const vec<C> zero(C(0));
  while (at.r + rows <= n) {
    const index_t end = at.i < turn ? turn : width;
    const reverse_keys<C, T> keys = all.from(at.r);
    const auto next = [&](const panel<T>& of) {
      return prefetch_lines<C>::with_turn(of, width, keys.uncached, end == width, rows);
    };
    const prefetch_lines<C> next_k = next(keys.k), next_v = next(keys.v), next_dk = next(keys.dk),
                            next_dv = next(keys.dv);
    for (index_t i = at.i; i < end; i += lanes<C>) {
      const index_t l = lane + i;
      vec<C> k[rows];
      vec<C> size = zero;
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        k[r] = load_as<C>(keys.k.row(r) + i);
        next_k.prefetch_last(r, i, keys.uncached);
        size = larger_size<C>(size, k[r]);
      }
      if (!xsimd::all(size <= load(view.ordinary_size + l))) return {at.r, i};
      const vec<C> down = -load(view.a_power + l);
      const vec<C> a = load(view.a_after + l);
      vec<C> weight[rows];
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) weight[r] = exp_near<C>(k[r], down);
      if (keys.dk.data != nullptr) {
        const vec<C> b = load(view.b_after + l);
        const vec<C> centre = load(view.centre + l);
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) {
          next_v.prefetch_last(r, i, keys.uncached);
          if (!keys.dk_streamed) next_dk.prefetch_writes(r, i);
          const vec<C> off = load_as<C>(keys.v.row(r) + i) - centre;
          keys.put(keys.dk.row(r) + i, mul_add(weight[r] * a, off, -(weight[r] * b)), keys.dk_streamed, keys.added);
        }
      }
      if (keys.dv.data != nullptr) {
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) {
          if (!keys.dv_streamed) next_dv.prefetch_writes(r, i);
          keys.put(keys.dv.row(r) + i, weight[r] * a, keys.dv_streamed, keys.added);
        }
      }
    }
    at = at.after(end, width, rows);
  }
  return at;
}

/// Keys [r, end) of column i, of any kind.
template <class C, class T>
[[gnu::flatten, gnu::noinline]] void emit_any_keys(const reverse_view<C>& view, const reverse_keys<C, T>& keys,
                                                   index_t l, index_t i, index_t r, index_t end) {
  const vec<C> zero(C(0));
  const reverse_past<C> past(view, l);
  const reverse_sums<C> sum(past, zero, zero);
  for (; r < end; ++r) emit_key<C>(keys, past, i, r, sum);
}

/// Keys [0, n) of a segment, so many at a time.
template <class C, index_t rows, class T>
[[gnu::noinline]] void emit_keys(const reverse_view<C>& view, const reverse_keys<C, T>& keys, const segment& x,
                                 index_t n) {
  for (panel_place at; at.r < n;) {
    at = emit_ordinary_keys<C, rows>(view, keys, x, n, at);
    emit_any_keys<C>(view, keys, x.lane + at.i, at.i, at.r, min_of(at.r + rows, n));
    at = at.after(at.i + lanes<C>, x.width, rows);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
