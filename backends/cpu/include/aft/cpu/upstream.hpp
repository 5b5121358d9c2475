// SPDX-License-Identifier: Apache-2.0
/// @file upstream.hpp  g = dy gate(q), o and the rows' weights, read together for a block of queries.
#pragma once

#include "gates.hpp"
#include "parallel.hpp"
#include "row_state.hpp"
#include "scratch.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// A backward call after its preparation: the problem, the averages o, and the row state, wherever they came from.
struct gradient_inputs {
  const backward_problem* p = nullptr;
  field average{};
  row_state state{};
};

/// A block of at most `most` queries of one lane tile, staged.
template <class C, index_t most>
struct upstream {
  C g[most * lanes<C>];
  C o[most * lanes<C>];
  C inverse[most * lanes<C>];
  C exponent[most * lanes<C>];
  C base_hi[most * lanes<C>];
  C base_lo[most * lanes<C>];

  /// Rows that see no key (inverse 0) get g = o = 0, whatever dy holds there.
  void read(const gradient_inputs& in, const lane_tile<C>& tile, index_t t0, index_t t1) {
    const backward_problem& p = *in.p;
    constexpr index_t L = lanes<C>;
    const index_t group = p.d / p.hk;
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    lane_field<C>(in.state.inverse, flat, tile, group).read(t0, t1, inverse);
    lane_field<C>(in.state.exponent, flat, tile, group).read(t0, t1, exponent);
    lane_field<C>(in.state.base_hi, flat, tile, group).read(t0, t1, base_hi);
    lane_field<C>(in.state.base_lo, flat, tile, group).read(t0, t1, base_lo);
    lane_field<C>(in.average, p.grid, tile, 1).read(t0, t1, o);
    lane_field<C>(p.dy, p.grid, tile, 1).read(t0, t1, g);
    const vec<C> zero(C(0));
    C q[most * L];
    const bool gated = p.gate_fn != gate::none;
    if (gated) lane_field<C>(p.q, p.grid, tile, 1).read(t0, t1, q);
    for (index_t i = 0; i < (t1 - t0) * L; i += L) {
      vec<C> up = load(g + i);
      if (gated) up = up * gate_value<C>(p.gate_fn, load(q + i));
      const auto empty = load(inverse + i) == zero;
      store(g + i, xsimd::select(empty, zero, up));
      store(o + i, xsimd::select(empty, zero, load(o + i)));
    }
  }
};

/// Where o and the row state come from: the caller's lse and average when both are given, else `recompute(problem,
/// state)` is asked to fill scratch with them.
template <class C, class Recompute>
inline gradient_inputs prepare_gradient(const backward_problem& p, scratch& memory, const cpu& exec,
                                        const Recompute& recompute) {
  gradient_inputs in;
  in.p = &p;
  in.average = p.average;
  in.state = scratch_state<C>(memory, p);
  if (p.lse.set && p.average.set) {
    constexpr index_t L = lanes<C>;
    constexpr index_t block = 16;
    const index_t tiles = (p.hk + L - 1) / L;
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    parallel_for(p.B * tiles, thread_count(exec), [&](index_t item, int) {
      const lane_tile<C> tile = make_lane_tile<C>(item / tiles, 0, p.hk, item % tiles * L, p.hk);
      const lane_field<C> lse(p.lse, p.grid, tile, 1);
      C x[block * L], inverse[block * L], exponent[block * L], hi[block * L], lo[block * L];
      for (index_t t0 = 0; t0 < p.Tq; t0 += block) {
        const index_t t1 = t0 + block < p.Tq ? t0 + block : p.Tq;
        lse.read(t0, t1, x);
        for (index_t i = 0; i < (t1 - t0) * L; i += L) {
          const lane_state<C> s = state_from_lse<C>(load(x + i));
          store(inverse + i, s.inverse);
          store(exponent + i, s.exponent);
          store(hi + i, s.base_hi);
          store(lo + i, s.base_lo);
        }
        lane_field<C>(in.state.inverse, flat, tile, 1).write(t0, t1, inverse);
        lane_field<C>(in.state.exponent, flat, tile, 1).write(t0, t1, exponent);
        lane_field<C>(in.state.base_hi, flat, tile, 1).write(t0, t1, hi);
        lane_field<C>(in.state.base_lo, flat, tile, 1).write(t0, t1, lo);
      }
    });
    return in;
  }
  in.average = scratch_field<C>(memory, p.B, p.Tq, p.d);
  // Flat in memory, but seen through the grid's strides, so that it can stand beside the other fields of a grid.
  in.average.sx = {p.grid[1] * p.grid[2] * p.d, p.grid[2] * p.d, p.d};
  problem forward = p;
  forward.y = field{};
  forward.lse = field{};
  forward.average = in.average;
  recompute(forward, in.state);
  return in;
}

/// dq = dy gate'(q) o, for every query; a row that saw no key has o = 0.
template <class C>
inline void query_gradient(const gradient_inputs& in, const cpu& exec) {
  const backward_problem& p = *in.p;
  if (!p.dq.set) return;
  constexpr index_t L = lanes<C>;
  constexpr index_t block = 16;
  const index_t tiles = (p.d + L - 1) / L;
  const index_t strips = (p.Tq + 255) / 256;
  parallel_for(p.B * strips, thread_count(exec), [&](index_t item, int) {
    C q[block * L], dy[block * L], o[block * L], inverse[block * L];
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    const index_t first = item % strips * 256;
    const index_t last = first + 256 < p.Tq ? first + 256 : p.Tq;
    for (index_t i = 0; i < tiles; ++i) {
      const lane_tile<C> tile = make_lane_tile<C>(item / strips, 0, p.d, i * L, p.d);
      for (index_t t0 = first; t0 < last; t0 += block) {
        const index_t t1 = t0 + block < last ? t0 + block : last;
        if (p.gate_fn != gate::none) lane_field<C>(p.q, p.grid, tile, 1).read(t0, t1, q);
        lane_field<C>(p.dy, p.grid, tile, 1).read(t0, t1, dy);
        lane_field<C>(in.average, p.grid, tile, 1).read(t0, t1, o);
        lane_field<C>(in.state.inverse, flat, tile, p.d / p.hk).read(t0, t1, inverse);
        for (index_t x = 0; x < (t1 - t0) * L; x += L) {
          const vec<C> zero(C(0));
          vec<C> slope = zero;
          if (p.gate_fn != gate::none) slope = load(dy + x) * gate_slope<C>(p.gate_fn, load(q + x));
          const auto empty = (load(inverse + x) == zero) || (p.gate_fn == gate::none ? zero == zero : zero != zero);
          store(dy + x, xsimd::select(empty, zero, slope * load(o + x)));
        }
        lane_field<C>(p.dq, p.grid, tile, 1).write(t0, t1, dy);
      }
    }
  });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
