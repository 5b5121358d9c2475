// SPDX-License-Identifier: Apache-2.0
/// @file stencil_tile.hpp  The register tile of the stencil: neighbouring outputs of a row, two vectors each.
#pragma once

#include <type_traits>

#include "tuning_stencil.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// out[i] = sum over rows and taps of weights[row][tap] in[row][i + tap + shift], where that input exists. An input is
/// two vectors; a weight is one for both, or two.
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
};

/// An output's place in a tile, known to the compiler: arrays that are indexed by it only become registers.
template <index_t I>
using lane_of_tile = std::integral_constant<index_t, I>;

/// Outputs [i0, i0 + N), N <= run.taps and N <= 8. V vectors per weight. Each output is one chain in the order of rows
/// and taps, so its bits do not depend on how outputs are cut into tiles.
///
/// An input is loaded once and scattered to the outputs that it lies under: one load of a weight feeds two
/// multiply-adds, where holding a weight and walking over inputs needs a load for each. At either end only the first
/// or the last outputs of the tile take part, so the unrolled code is left early or entered in the middle. Padding
/// with zeros instead would cost 20% more work for 11 taps on a row of 14.
template <class C, index_t N, index_t V>
inline void stencil_tile(const stencil_run<C>& run, index_t i0, C* out) {
  constexpr index_t L = lanes<C>;
  vec<C> a[N];
  vec<C> b[N];
  const auto for_all = [](const auto& f) {
    f(lane_of_tile<0>{});
    f(lane_of_tile<1>{});
    f(lane_of_tile<2>{});
    f(lane_of_tile<3>{});
    f(lane_of_tile<4>{});
    f(lane_of_tile<5>{});
    f(lane_of_tile<6>{});
    f(lane_of_tile<7>{});
  };
  for_all([&](auto index) {
    constexpr index_t i = decltype(index)::value;
    if constexpr (i < N) a[i] = b[i] = vec<C>(C(0));
  });
  const auto clamp = [](index_t x, index_t low, index_t high) { return x < low ? low : (x > high ? high : x); };
  // Input x lies under tap x - base - i of output i.
  const index_t base = i0 + run.shift;
  const index_t begin = clamp(base, 0, run.width);
  const index_t end = clamp(base + N - 1 + run.taps, begin, run.width);
  const index_t head = clamp(base + N - 1, begin, end);
  const index_t full = clamp(base + run.taps, head, end);
  for (index_t plane = 0; plane < run.planes; ++plane) {
    for (index_t row = 0; row < run.rows; ++row) {
      const C* in = run.in + plane * run.in_plane + row * run.in_row + begin * (2 * L);
      const C* w = run.weights + plane * run.weight_plane + row * run.weight_row + (begin - base) * (V * L);
      vec<C> p0, p1;
      const auto step = [&](auto index) {
        constexpr index_t i = decltype(index)::value;
        if constexpr (i < N) {
          const vec<C> w0 = load(w - i * (V * L));
          a[i] = mul_add(w0, p0, a[i]);
          b[i] = mul_add(V == 1 ? w0 : load(w - i * (V * L) + L), p1, b[i]);
        }
      };
      index_t x = begin;
      const auto take = [&] {
        p0 = load(in);
        p1 = load(in + L);
      };
      const auto advance = [&] {
        in += 2 * L;
        w += V * L;
      };
      for (; x < head; ++x, advance()) {
        take();
        switch (x - base) {  // the last output that this input reaches
          case 6: step(lane_of_tile<6>{}); [[fallthrough]];
          case 5: step(lane_of_tile<5>{}); [[fallthrough]];
          case 4: step(lane_of_tile<4>{}); [[fallthrough]];
          case 3: step(lane_of_tile<3>{}); [[fallthrough]];
          case 2: step(lane_of_tile<2>{}); [[fallthrough]];
          case 1: step(lane_of_tile<1>{}); [[fallthrough]];
          default: step(lane_of_tile<0>{});
        }
      }
      for (; x < full; ++x, advance()) {
        take();
        for_all(step);
      }
      for (; x < end; ++x, advance()) {
        take();
        switch (x - base - run.taps + 1) {  // the first output that this input reaches
          case 1: step(lane_of_tile<1>{}); [[fallthrough]];
          case 2: step(lane_of_tile<2>{}); [[fallthrough]];
          case 3: step(lane_of_tile<3>{}); [[fallthrough]];
          case 4: step(lane_of_tile<4>{}); [[fallthrough]];
          case 5: step(lane_of_tile<5>{}); [[fallthrough]];
          case 6: step(lane_of_tile<6>{}); [[fallthrough]];
          default: step(lane_of_tile<7>{});
        }
      }
    }
  }
  for_all([&](auto index) {
    constexpr index_t i = decltype(index)::value;
    if constexpr (i < N) {
      store(out + i * (2 * L), a[i]);
      store(out + i * (2 * L) + L, b[i]);
    }
  });
}

/// Outputs [i0, i1), cut into tiles of nearly equal size.
template <class C, index_t V>
inline void stencil_outputs(const stencil_run<C>& run, index_t i0, index_t i1, C* out) {
  constexpr index_t most = tuning_stencil<C>::outputs;
  static_assert(most <= 8);
  if (i1 <= i0) return;
  if (run.taps <= 0) {
    for (index_t i = 0; i < (i1 - i0) * 2 * lanes<C>; ++i) out[i] = C(0);
    return;
  }
  const index_t widest = run.taps < most ? run.taps : most;
  const index_t tiles = (i1 - i0 + widest - 1) / widest;
  for (index_t tile = 0; tile < tiles; ++tile) {
    const index_t from = i0 + (i1 - i0) * tile / tiles;
    const index_t to = i0 + (i1 - i0) * (tile + 1) / tiles;
    C* const into = out + (from - i0) * (2 * lanes<C>);
    const auto run_tile = [&](auto size) {
      constexpr index_t N = decltype(size)::value;
      if constexpr (N <= most) stencil_tile<C, N, V>(run, from, into);
    };
    switch (to - from) {
      case 1: run_tile(lane_of_tile<1>{}); break;
      case 2: run_tile(lane_of_tile<2>{}); break;
      case 3: run_tile(lane_of_tile<3>{}); break;
      case 4: run_tile(lane_of_tile<4>{}); break;
      case 5: run_tile(lane_of_tile<5>{}); break;
      case 6: run_tile(lane_of_tile<6>{}); break;
      case 7: run_tile(lane_of_tile<7>{}); break;
      default: run_tile(lane_of_tile<8>{}); break;
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
