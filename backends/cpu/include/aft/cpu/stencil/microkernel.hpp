// SPDX-License-Identifier: Apache-2.0
/// @file stencil/microkernel.hpp  The register tile of the stencil: neighbouring outputs of a row, two vectors each.
#pragma once

#include <type_traits>
#include <utility>

#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// out[i] = sum over rows and taps of weights[row][tap] in[row][i + tap + shift], where that input exists, and
/// outside rest[i] on top. An input is two vectors; a weight is one for both, or two.
template <class C>
struct stencil_run {
  const C* weights = nullptr;
  index_t weight_row = 0, weight_plane = 0;
  const C* in = nullptr;
  index_t in_row = 0, in_plane = 0;
  index_t planes = 0, rows = 0;
  index_t taps = 0;
  index_t width = 0;  ///< inputs of a row
  index_t shift = 0;
  const C* rest = nullptr;     ///< two vectors an output
  const C* outside = nullptr;  ///< one vector
};

/// An output's place in a tile, known to the compiler: arrays that are indexed by it only become registers.
template <index_t Place>
using lane_of_tile = std::integral_constant<index_t, Place>;

/// Calls f with every place below N.
template <index_t N, class F, std::size_t... Places>
[[gnu::always_inline]] inline void for_each_place(const F& f, std::index_sequence<Places...>) {
  (f(lane_of_tile<static_cast<index_t>(Places)>{}), ...);
}
template <index_t N, class F>
[[gnu::always_inline]] inline void for_each_place(const F& f) {
  for_each_place<N>(f, std::make_index_sequence<static_cast<std::size_t>(N)>{});
}

/// The accumulators of a tile, and what one or two neighbouring taps add to them.
template <class C, index_t N, index_t V>
struct stencil_accumulators {
  static constexpr index_t L = lanes<C>;
  vec<C> a[N];
  vec<C> b[N];

  /// Input K of the tile lies under the first tap of output K and under the second one of output K - 1: two loads feed
  /// four multiply-adds. Where a weight is walked along the row, each of them needs a load of its own.
  template <bool Two, index_t K>
  [[gnu::always_inline]] void step(lane_of_tile<K>, const C* in, const vec<C> (&w)[2][V]) {
    if constexpr (K < N || (Two && K == N)) {
      vec<C> p0 = load(in + K * (2 * L));
      vec<C> p1 = load(in + K * (2 * L) + L);
      if constexpr (Two && K > 0 && K < N) {
        keep_in_register<C>(p0);
        keep_in_register<C>(p1);
      }
      if constexpr (K < N) {
        a[K] = mul_add(w[0][0], p0, a[K]);
        b[K] = mul_add(w[0][V - 1], p1, b[K]);
      }
      if constexpr (Two && K > 0) {
        a[K - 1] = mul_add(w[1][0], p0, a[K - 1]);
        b[K - 1] = mul_add(w[1][V - 1], p1, b[K - 1]);
      }
      hold_until_here<C>(p0);
      hold_until_here<C>(p1);
    }
  }

  /// Inputs [first, last] of the tile. At the ends of a row only some of its outputs have one: the unrolled code is
  /// entered in the middle or left early. Padding with zeros would cost 20% more for 11 taps on a row of 14.
  template <bool Two>
  [[gnu::always_inline]] void taps(const C* in, const vec<C> (&w)[2][V], index_t first, index_t last) {
#define AFT_STEP(K)                        \
  case (K):                                \
    step<Two>(lane_of_tile<(K)>{}, in, w); \
    if ((K) >= N || last == (K)) break;    \
    [[fallthrough]]
    switch (first) {
      AFT_STEP(0);
      AFT_STEP(1);
      AFT_STEP(2);
      AFT_STEP(3);
      AFT_STEP(4);
      AFT_STEP(5);
      AFT_STEP(6);
      AFT_STEP(7);
      AFT_STEP(8);
      AFT_STEP(9);
      AFT_STEP(10);
      AFT_STEP(11);
      AFT_STEP(12);
      AFT_STEP(13);
      default: step<Two>(lane_of_tile<14>{}, in, w);
    }
#undef AFT_STEP
  }
};

/// Outputs [i0, i0 + n), n <= N. V vectors per weight. Each output is one chain in the order of rows and taps, so its
/// bits do not depend on how outputs are cut into tiles.
template <class C, index_t N, index_t V>
[[gnu::noinline]] void stencil_tile(const stencil_run<C>& run, index_t i0, index_t n, C* out) {
  constexpr index_t L = lanes<C>;
  stencil_accumulators<C, N, V> sum;
  for_each_place<N>([&](auto index) __attribute__((always_inline)) {
    constexpr index_t i = decltype(index)::value;
    sum.a[i] = sum.b[i] = vec<C>(C(0));
  });
  // Output i reads input i + j + base under tap j.
  const index_t base = i0 + run.shift;
  const index_t begin = base + n > 1 ? 0 : 1 - n - base;
  const index_t end = run.width - base < run.taps ? run.width - base : run.taps;
  for (index_t plane = 0; plane < run.planes; ++plane) {
    for (index_t row = 0; row < run.rows; ++row) {
      const C* const in = run.in + plane * run.in_plane + row * run.in_row;
      const C* const weights = run.weights + plane * run.weight_plane + row * run.weight_row;
      index_t j = begin;
      for (; j + 1 < end; j += 2) {
        const index_t s = base + j;
        const C* const at = weights + j * (V * L);
        vec<C> w[2][V];
        for (index_t v = 0; v < V; ++v) {
          w[0][v] = load(at + v * L);
          w[1][v] = load(at + (V + v) * L);
        }
        const index_t left = run.width - 1 - s;
        sum.template taps<true>(in + s * (2 * L), w, s < 0 ? -s : 0, min_of(left, n));
      }
      if (j < end) {
        const index_t s = base + j;
        vec<C> w[2][V];
        for (index_t v = 0; v < V; ++v) w[0][v] = w[1][v] = load(weights + (j * V + v) * L);
        const index_t left = run.width - 1 - s;
        sum.template taps<false>(in + s * (2 * L), w, s < 0 ? -s : 0, left < n - 1 ? left : n - 1);
      }
    }
  }
  if (run.rest != nullptr) {
    const C* const rest = run.rest + i0 * (2 * L);
    const vec<C> outside = load(run.outside);
    for_each_place<N>([&](auto index) __attribute__((always_inline)) {
      constexpr index_t i = decltype(index)::value;
      if (i < n) {
        store(out + i * (2 * L), mul_add(outside, load(rest + i * (2 * L)), sum.a[i]));
        store(out + i * (2 * L) + L, mul_add(outside, load(rest + i * (2 * L) + L), sum.b[i]));
      }
    });
    return;
  }
  for_each_place<N>([&](auto index) __attribute__((always_inline)) {
    constexpr index_t i = decltype(index)::value;
    if (i < n) {
      store(out + i * (2 * L), sum.a[i]);
      store(out + i * (2 * L) + L, sum.b[i]);
    }
  });
}

/// Outputs [i0, i1), cut into tiles of nearly equal size.
template <class C, index_t V>
inline void stencil_outputs(const stencil_run<C>& run, index_t i0, index_t i1, C* out) {
  // Two vectors of an input and V of each of two taps stand beside the accumulators.
  constexpr index_t most = (tuning_stencil<C>::registers - 2 - 2 * V) / 2;
  static_assert(most <= 14);
  if (i1 <= i0) return;
  const index_t tiles = ceil_div(i1 - i0, most);
  for (index_t tile = 0; tile < tiles; ++tile) {
    const index_t from = i0 + (i1 - i0) * tile / tiles;
    const index_t to = i0 + (i1 - i0) * (tile + 1) / tiles;
    stencil_tile<C, most, V>(run, from, to - from, out + (from - i0) * (2 * lanes<C>));
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
