// SPDX-License-Identifier: Apache-2.0
/// @file stencil_tile.hpp  The register tile of the stencil: neighbouring outputs of a row, two vectors each.
#pragma once

#include <type_traits>

#include "tuning_stencil.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

template <index_t I>
using at = std::integral_constant<index_t, I>;

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

/// Outputs [i0, i0 + n) with n <= N and n <= run.width. V vectors per weight. Each output is one chain in the order
/// of rows and taps, so its bits do not depend on how outputs are cut into tiles.
///
/// At the ends of a row only part of the outputs have an input under a tap. A tap then enters the unrolled code in
/// the middle (or leaves it early): no multiplication with padding, which would be 20% of the work for 11 taps on a
/// row of 14.
template <class C, index_t N, index_t V>
inline void stencil_tile(const stencil_run<C>& run, index_t i0, index_t n, C* out) {
  constexpr index_t L = lanes<C>;
  vec<C> a[N];
  vec<C> b[N];
  for (index_t i = 0; i < N; ++i) {
    a[i] = vec<C>(C(0));
    b[i] = vec<C>(C(0));
  }
  const auto clamp = [](index_t x, index_t low, index_t high) { return x < low ? low : (x > high ? high : x); };
  // Under tap `first` output i0 reads input 0.
  const index_t first = -run.shift - i0;
  const index_t head_end = clamp(first, 0, run.taps);
  const index_t head = clamp(first - n + 1, 0, head_end);
  const index_t full_end = clamp(first + run.width - n + 1, head_end, run.taps);
  const index_t tail_end = clamp(first + run.width, full_end, run.taps);
  for (index_t plane = 0; plane < run.planes; ++plane) {
    for (index_t row = 0; row < run.rows; ++row) {
      const C* w = run.weights + plane * run.weight_plane + row * run.weight_row + head * (V * L);
      const C* const in = run.in + plane * run.in_plane + row * run.in_row;
      vec<C> w0, w1;
      const C* p = nullptr;
      const auto take = [&](index_t j) {
        w0 = load(w);
        w1 = V == 2 ? load(w + (V - 1) * L) : w0;
        w += V * L;
        p = in + (j - first) * (2 * L);
      };
      const auto step = [&](auto index) {
        constexpr index_t i = decltype(index)::value;
        if constexpr (i < N) {
          a[i] = xsimd::fma(w0, load(p + i * (2 * L)), a[i]);
          b[i] = xsimd::fma(w1, load(p + i * (2 * L) + L), b[i]);
        }
      };
      index_t j = head;
      for (; j < head_end; ++j) {
        take(j);
        // Outputs past n gather what nobody reads; the buffers are padded for it.
        switch (first - j) {
          case 1: step(at<1>{}); [[fallthrough]];
          case 2: step(at<2>{}); [[fallthrough]];
          case 3: step(at<3>{}); [[fallthrough]];
          case 4: step(at<4>{}); [[fallthrough]];
          case 5: step(at<5>{}); [[fallthrough]];
          case 6: step(at<6>{}); [[fallthrough]];
          case 7: step(at<7>{}); [[fallthrough]];
          case 8: step(at<8>{}); [[fallthrough]];
          case 9: step(at<9>{}); [[fallthrough]];
          case 10: step(at<10>{}); [[fallthrough]];
          case 11: step(at<11>{}); [[fallthrough]];
          case 12: step(at<12>{}); [[fallthrough]];
          case 13: step(at<13>{}); [[fallthrough]];
          default: break;
        }
      }
      if (n == N) {
        for (; j < full_end; ++j) {
          take(j);
          step(at<0>{}); step(at<1>{}); step(at<2>{}); step(at<3>{}); step(at<4>{}); step(at<5>{}); step(at<6>{});
          step(at<7>{}); step(at<8>{}); step(at<9>{}); step(at<10>{}); step(at<11>{}); step(at<12>{}); step(at<13>{});
        }
      }
      for (; j < tail_end; ++j) {
        take(j);
        const index_t many = first + run.width - j < n ? first + run.width - j : n;
        switch (many) {
          case 14: step(at<13>{}); [[fallthrough]];
          case 13: step(at<12>{}); [[fallthrough]];
          case 12: step(at<11>{}); [[fallthrough]];
          case 11: step(at<10>{}); [[fallthrough]];
          case 10: step(at<9>{}); [[fallthrough]];
          case 9: step(at<8>{}); [[fallthrough]];
          case 8: step(at<7>{}); [[fallthrough]];
          case 7: step(at<6>{}); [[fallthrough]];
          case 6: step(at<5>{}); [[fallthrough]];
          case 5: step(at<4>{}); [[fallthrough]];
          case 4: step(at<3>{}); [[fallthrough]];
          case 3: step(at<2>{}); [[fallthrough]];
          case 2: step(at<1>{}); [[fallthrough]];
          case 1: step(at<0>{}); [[fallthrough]];
          default: break;
        }
      }
    }
  }
  for (index_t i = 0; i < N; ++i) {
    if (i >= n) break;
    store(out + i * (2 * L), a[i]);
    store(out + i * (2 * L) + L, b[i]);
  }
}

/// Outputs [i0, i1), cut into tiles of nearly equal height so that no tile is mostly empty.
template <class C, index_t V>
inline void stencil_outputs(const stencil_run<C>& run, index_t i0, index_t i1, C* out) {
  constexpr index_t most = tuning_stencil<C>::outputs;
  // A tile must not be wider than the input row, see stencil_tile.
  const index_t widest = run.width < most ? run.width : most;
  if (i1 <= i0) return;
  const index_t tiles = (i1 - i0 + widest - 1) / widest;
  for (index_t tile = 0; tile < tiles; ++tile) {
    const index_t from = i0 + (i1 - i0) * tile / tiles;
    const index_t to = i0 + (i1 - i0) * (tile + 1) / tiles;
    C* const at_tile = out + (from - i0) * (2 * lanes<C>);
    if (to - from > most / 2) {
      stencil_tile<C, most, V>(run, from, to - from, at_tile);
    } else {
      stencil_tile<C, most / 2, V>(run, from, to - from, at_tile);
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
