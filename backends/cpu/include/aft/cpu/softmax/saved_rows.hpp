// SPDX-License-Identifier: Apache-2.0
/// @file softmax/saved_rows.hpp  What a backward pass knows of its queries: g = dy gate(q), o, and the rows' weights.
#pragma once

#include "../math/gates.hpp"
#include "../runtime/parallel.hpp"
#include "../runtime/workspace.hpp"
#include "padding.hpp"
#include "row_state.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Rows and lane tiles that are gated together, where rows are no whole vectors: with 500 channels 8 rows cost 4% of
/// local_backward, 4 rows 8%; 4 to 16 lane tiles differ by less than noise, and rows of 4 take 16 KiB of stack.
struct gate_block {
  static constexpr index_t rows = 16, tiles = 4;
};

/// A backward call after its preparation: the problem, the averages o, where the rows' weights come from, and room
/// for g. With `from_lse` the weights are formed from the caller's lse as they are read: that costs an exp where
/// copies of them would cost memory bandwidth, and fresh pages above all.
struct gradient_inputs {
  const backward_problem* p = nullptr;
  field average{};
  field g{};
  row_state state{};
  bool from_lse = false;
  bool gates_later = false;  ///< g is not kept: whoever reads it forms it from dy and q
};

/// g = dy gate(q) of rows [t0, t1) of a lane tile, from where it is kept or anew. Whoever uses it leaves out rows that
/// see no key.
template <class C>
[[gnu::noinline]] inline void read_gradients(const gradient_inputs& in, const lane_tile<C>& tile, index_t t0,
                                             index_t t1, C* g) {
  constexpr index_t L = lanes<C>;
  const backward_problem& p = *in.p;
  if (!in.gates_later) {
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    const lane_field<C> kept(in.g, flat, tile, 1);
    kept.prefetch_beside(t0, t1);
    kept.read(t0, t1, g);
    return;
  }
  const lane_field<C> dy(p.dy, p.grid, tile, 1), q(p.q, p.grid, tile, 1);
  dy.read(t0, t1, g);
  for (index_t t = t0; t < t1; ++t, g += L) {
    C query[L];
    q.read(t, t + 1, query);
    store(g, load(g) * gate_both<C>(p.gate_fn, load(query)).value);
  }
}

/// The weights of rows [t0, t1) of a lane tile, staged: a = exp(k + w - 2 base) 2^-exponent inverse.
template <class C>
[[gnu::noinline]] inline void read_row_weights(const gradient_inputs& in, const lane_tile<C>& tile, index_t t0,
                                               index_t t1, C* inverse, C* exponent, C* base_hi, C* base_lo) {
  const backward_problem& p = *in.p;
  const index_t group = p.d / state_channels(p);
  const index_t n = (t1 - t0) * lanes<C>;
  if (in.from_lse) {
    const lane_field<C> lse(p.lse, p.grid, tile, group);
    lse.prefetch_beside(t0, t1);
    lse.read(t0, t1, inverse, -std::numeric_limits<C>::infinity());  // idle lanes are empty, as those of a state are
    return states_from_lse<C>(n, inverse, exponent, base_hi, base_lo);
  }
  const std::array<index_t, 3> flat{1, 1, p.Tq};
  const lane_field<C> inverses(in.state.inverse, flat, tile, group), exponents(in.state.exponent, flat, tile, group);
  inverses.prefetch_beside(t0, t1);
  exponents.prefetch_beside(t0, t1);
  inverses.read(t0, t1, inverse);
  exponents.read(t0, t1, exponent);
  if (in.state.base_hi.set) {
    lane_field<C>(in.state.base_hi, flat, tile, group).read(t0, t1, base_hi);
    lane_field<C>(in.state.base_lo, flat, tile, group).read(t0, t1, base_lo);
  } else {
    for (index_t i = 0; i < n; ++i) base_hi[i] = base_lo[i] = C(0);
  }
}

/// A block of at most `most` queries of one lane tile, staged. Rows that see no key have g = 0, o = 0, inverse = 0.
template <class C, index_t most>
struct saved_rows {
  C g[most * lanes<C>];
  C o[most * lanes<C>];
  C inverse[most * lanes<C>];
  C exponent[most * lanes<C>];
  C base_hi[most * lanes<C>];
  C base_lo[most * lanes<C>];

  [[gnu::noinline]] void read(const gradient_inputs& in, const lane_tile<C>& tile, index_t t0, index_t t1) {
    const backward_problem& p = *in.p;
    const lane_field<C> averages(in.average, p.grid, tile, 1);
    averages.prefetch_beside(t0, t1);
    read_row_weights<C>(in, tile, t0, t1, inverse, exponent, base_hi, base_lo);
    averages.read(t0, t1, o);
    read_gradients<C>(in, tile, t0, t1, g);
    const vec<C> zero(C(0));
    for (index_t i = 0; i < (t1 - t0) * lanes<C>; i += lanes<C>) {
      const auto empty = load(inverse + i) == zero;
      store(o + i, xsimd::select(empty, zero, load(o + i)));
      store(g + i, xsimd::select(empty, zero, load(g + i)));
    }
  }
};

/// Queries [t0, t1) of `count` lane tiles that lie side by side, vector by vector. `buffers` has room for six blocks
/// of `size` numbers, which hold what cannot be used where it lies. Every read asks for the same of `ahead` rows on.
template <class C>
class query_rows {
 public:
  query_rows(const gradient_inputs& in, const lane_tile<C>* tiles, index_t count, index_t t0, index_t t1, C* buffers,
             index_t size)
      : from_lse_(in.from_lse), based_(in.state.base_hi.set) {
    const backward_problem& p = *in.p;
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    const index_t group = p.d / state_channels(p);
    g_ = lane_group<C>(in.g, flat, tiles, count, 1).rows(t0, t1, buffers);
    o_ = lane_group<C>(in.average, p.grid, tiles, count, 1).rows(t0, t1, buffers + size);
    if (from_lse_) {
      inverse_ = lane_group<C>(p.lse, p.grid, tiles, count, group)
                     .rows(t0, t1, buffers + 2 * size, -std::numeric_limits<C>::infinity());
      return;
    }
    inverse_ = lane_group<C>(in.state.inverse, flat, tiles, count, group).rows(t0, t1, buffers + 2 * size);
    exponent_ = lane_group<C>(in.state.exponent, flat, tiles, count, group).rows(t0, t1, buffers + 3 * size);
    if (!based_) return;
    hi_ = lane_group<C>(in.state.base_hi, flat, tiles, count, group).rows(t0, t1, buffers + 4 * size);
    lo_ = lane_group<C>(in.state.base_lo, flat, tiles, count, group).rows(t0, t1, buffers + 5 * size);
  }

  [[gnu::always_inline]] lane_state<C> weights(index_t r, index_t i, index_t ahead) const {
    const vec<C> first = next(inverse_, r, i, ahead);
    if (from_lse_) return state_from_lse<C, true>(first);
    const vec<C> zero(C(0));
    return {first, next(exponent_, r, i, ahead), based_ ? load(hi_.at(r, i)) : zero,
            based_ ? load(lo_.at(r, i)) : zero};
  }
  [[gnu::always_inline]] vec<C> g(index_t r, index_t i, index_t ahead) const { return next(g_, r, i, ahead); }
  [[gnu::always_inline]] vec<C> o(index_t r, index_t i, index_t ahead) const { return next(o_, r, i, ahead); }

 private:
  [[gnu::always_inline]] static vec<C> next(const staged_rows<C>& from, index_t r, index_t i, index_t ahead) {
    const C* const at = from.at(r, i);
    prefetch(at, ahead * from.step);
    return load(at);
  }

  bool from_lse_, based_;
  staged_rows<C> g_, o_, inverse_, exponent_, hi_, lo_;
};

/// Whether the caller's lse and average say all about the rows. A key channel that serves several heads has one lse but
/// several sums, so that there lse does not suffice.
inline bool states_rows(const backward_problem& p) {
  return p.lse.set && p.average.set && state_channels(p) == p.hk;
}

/// Takes, from a scratch that counts, what prepare_gradient will take.
template <class C>
inline void count_incoming(const backward_problem& p, scratch& counter) {
  const index_t all = p.B * p.Tq * p.d;
  counter.take<C>(states_rows(p) ? all : 2 * all + 2 * p.B * p.Tq * state_channels(p));
}

/// Where o and the rows' weights come from: the caller's lse and average when both are given and enough, else
/// `recompute(problem, state)` is asked to fill scratch with them.
template <class C, class Recompute>
inline gradient_inputs prepare_gradient(const backward_problem& p, bool gates_later, scratch& memory,
                                        const Recompute& recompute) {
  gradient_inputs in;
  in.p = &p;
  in.gates_later = gates_later;
  if (!gates_later) in.g = scratch_field<C>(memory, p.B, p.Tq, p.d);
  in.from_lse = states_rows(p);
  in.average = p.average;
  if (in.from_lse) return in;
  in.average = scratch_field<C>(memory, p.B, p.Tq, p.d);
  // Flat in memory, but seen through the grid's strides, so that it can stand beside the other fields of a grid.
  in.average.sx = {p.grid[1] * p.grid[2] * p.d, p.grid[2] * p.d, p.d};
  problem forward = p;
  forward.y = field{};
  forward.lse = field{};
  forward.average = in.average;
  forward.all_queries = 0;
  in.state = scratch_state<C>(memory, p);
  if (p.folds_once) add_state_bases<C>(memory, p, in.state);
  recompute(forward, in.state);
  if (p.folds_once) {
    // Bases that are all 0 would send what follows another way, and so to other bits.
    if (!in.state.beyond->load()) in.state.base_hi = in.state.base_lo = field{};
  } else if (in.state.beyond->load()) {
    // Logits beyond exp_constants::range are rare enough to fold twice, rather than to keep bases that are all 0.
    add_state_bases<C>(memory, p, in.state);
    recompute(forward, in.state);
  }
  if (p.pads_queries()) empty_padding<C>(p, in.state);
  return in;
}

/// The largest finite |x| so far, as a vector; null: not wanted.
template <class C>
class largest_size {
 public:
  explicit largest_size(C* to) : to_(to), high_(to != nullptr ? load(to) : vec<C>(C(0))) {}
  void take(const vec<C>& x) {
    const vec<C> size = (xsimd::abs)(x);
    high_ = max_ignoring_nan<C>(high_,
                                xsimd::select(size < vec<C>(std::numeric_limits<C>::infinity()), size, vec<C>(C(0))));
  }
  void leave() const {
    if (to_ != nullptr) store(to_, high_);
  }

 private:
  C* to_;
  vec<C> high_;
};

/// g = dy gate(q) into its scratch and dq = dy gate'(q) o, each where it is wanted. A row that saw no key gets exact
/// zeros, whatever dy holds there.
template <class C>
[[gnu::flatten]] inline void gate_rows(const gradient_inputs& in, const lane_tile<C>* tiles, index_t count, index_t t0,
                                       index_t t1, C* highest) {
  constexpr index_t L = lanes<C>;
  constexpr index_t room = gate_block::rows * gate_block::tiles * L;
  const backward_problem& p = *in.p;
  const std::array<index_t, 3> flat{1, 1, p.Tq};
  const bool gated = p.gate_fn != gate::none;
  const bool wanted = p.dq.set;
  const index_t group = p.d / state_channels(p);
  // What is formed replaces what it was formed from, vector by vector: stacks are small.
  C q_room[room], dy_room[room], o_room[room], weight_room[room];
  C *const g = dy_room, *const dq = o_room;
  const field& weights = in.from_lse ? p.lse : in.state.inverse;
  const staged_rows<C> weight =
      lane_group<C>(weights, in.from_lse ? p.grid : flat, tiles, count, group).rows(t0, t1, weight_room);
  const staged_rows<C> dy = lane_group<C>(p.dy, p.grid, tiles, count, 1).rows(t0, t1, dy_room);
  staged_rows<C> q = dy, o = dy;
  if (gated) q = lane_group<C>(p.q, p.grid, tiles, count, 1).rows(t0, t1, q_room);
  if (wanted) o = lane_group<C>(in.average, p.grid, tiles, count, 1).rows(t0, t1, o_room);
  const vec<C> zero(C(0)), none(in.from_lse ? -std::numeric_limits<C>::infinity() : C(0));
  const index_t apart = (t1 - t0) * L;
  largest_size<C> largest(highest);
  for (index_t r = 0; r < t1 - t0; ++r) {
    for (index_t i = 0; i < count; ++i) {
      const vec<C> up = load(dy.at(r, i));
      const auto empty = load(weight.at(r, i)) == none;
      // Both, wanted or not: gate_value rounds differently, and g must not depend on which gradients are wanted.
      const gate_pair<C> gate = gate_both<C>(p.gate_fn, load(q.at(r, i)));
      const vec<C> upper = xsimd::select(empty, zero, up * gate.value);
      largest.take(upper);
      store(g + i * apart + r * L, upper);
      if (!wanted) continue;
      const vec<C> slope = gated ? (up * gate.slope) * load(o.at(r, i)) : zero;
      store(dq + i * apart + r * L, xsimd::select(empty, zero, slope));
    }
  }
  largest.leave();
  for (index_t i = 0; i < count; ++i) {
    if (in.g.set) lane_field<C>(in.g, flat, tiles[i], 1).write(t0, t1, g + i * apart);
    if (!wanted) continue;
    lane_field<C>(p.dq, p.grid, tiles[i], 1).write(t0, t1, dq + i * apart);
  }
}

/// Row t of batch element b, of an array whose channels lie side by side.
template <class T>
inline T* row_at(const field& f, index_t b, index_t t) {
  return reinterpret_cast<T*>(f.data) + b * f.sb + t * f.sx[2];
}

/// Rows [t0, t1) of one batch element whose arrays all lie in rows of whole vectors: read and written as memory lies,
/// which the hardware foresees. T is the type of q, dy and dq, A of the averages.
template <class C, class T, class A>
[[gnu::flatten]] inline void gate_whole_rows(const gradient_inputs& in, index_t b, index_t t0, index_t t1,
                                             bool streamed, C* highest) {
  constexpr index_t L = lanes<C>;
  const backward_problem& p = *in.p;
  const field& weights = in.from_lse ? p.lse : in.state.inverse;
  const bool gated = p.gate_fn != gate::none;
  const field& queries = gated ? p.q : p.dy;  // without a gate q may be anything, or nothing
  const bool wanted = p.dq.set;
  const vec<C> zero(C(0)), none(in.from_lse ? -std::numeric_limits<C>::infinity() : C(0));
  const auto apply = [&](const auto& both) __attribute__((always_inline)) {
    largest_size<C> largest(highest);
    for (index_t t = t0; t < t1; ++t) {
      const T* const q = row_at<T>(queries, b, t);
      const T* const dy = row_at<T>(p.dy, b, t);
      const C* const weight = row_at<C>(weights, b, t);
      const A* const o = row_at<A>(in.average, b, t);
      C* const g = in.g.set ? row_at<C>(in.g, b, t) : nullptr;
      T* const dq = wanted ? row_at<T>(p.dq, b, t) : nullptr;
      for (index_t c = 0; c < p.d; c += L) {
        const vec<C> up = load_as<C>(dy + c);
        const auto empty = load(weight + c) == none;
        const gate_pair<C> gate = both(load_as<C>(q + c));
        const vec<C> upper = xsimd::select(empty, zero, up * gate.value);
        largest.take(upper);
        if (g != nullptr) store(g + c, upper);
        if (dq == nullptr) continue;
        // Without a gate dq is 0, and not 0 times an average that may be infinite.
        const vec<C> slope = gated ? (up * gate.slope) * load_as<C>(o + c) : zero;
        const vec<C> out = xsimd::select(empty, zero, slope);
        if constexpr (std::is_same_v<T, C>) {
          put(dq + c, out, streamed);
        } else {
          store_as<C>(dq + c, out);
        }
      }
    }
    largest.leave();
  };
  // The usual gate has a loop of its own, in which its constants stay in registers.
  if (p.gate_fn == gate::sigmoid) {
    apply([](const vec<C>& x) __attribute__((always_inline)) { return gate_detail::sigmoid_pair<C>(x); });
  } else {
    apply([&](const vec<C>& x) __attribute__((always_inline)) { return gate_both<C>(p.gate_fn, x); });
  }
}

/// The gradients of the gate, row by row as memory lies. `max_abs`: a vector a thread for the largest |g|, at first 0,
/// or null.
template <class C>
inline void gate_gradient(const gradient_inputs& in, const cpu& exec, C* max_abs) {
  const backward_problem& p = *in.p;
  constexpr index_t L = lanes<C>;
  constexpr index_t rows = gate_block::rows;
  constexpr index_t most = gate_block::tiles;
  const index_t count = ceil_div(p.d, L);
  const index_t row_blocks = ceil_div(p.Tq, rows);
  const auto whole = [&](const field& f, dtype type) {
    return f.type == type && f.sc == 1 && p.d % L == 0 && p.grid[0] == 1 && p.grid[1] == 1;
  };
  const dtype own = dtype_of<C>, data = p.dy.type, average = in.average.type;
  const bool plain = (data == own || data == dtype::bf16) && (!in.g.set || whole(in.g, own)) &&
                     (average == own || average == data) && whole(in.average, average) && whole(p.dy, data) &&
                     (p.gate_fn == gate::none || whole(p.q, data)) && (!p.dq.set || whole(p.dq, data)) &&
                     state_channels(p) == p.d && (!in.from_lse || whole(p.lse, own));
  bool streamed = plain && p.dq.set;
  if (streamed) {
    const lane_tile<C> first = make_lane_tile<C>(0, 0, p.d, 0, p.d);
    streamed = lane_field<C>(p.dq, p.grid, first, 1).streams_rows(p) &&
               static_cast<std::uintptr_t>(p.dq.sb) * sizeof(C) % sizeof(vec<C>) == 0;
  }
  parallel_for(p.B * row_blocks, thread_count(exec), [&](index_t item, int thread) {
    C* const highest = max_abs != nullptr ? max_abs + thread * L : nullptr;
    const index_t t0 = item % row_blocks * rows;
    const index_t t1 = min_of(t0 + rows, p.Tq);
    if (plain) {
      const index_t b = item / row_blocks;
      if (data == own) gate_whole_rows<C, C, C>(in, b, t0, t1, streamed, highest);
      if constexpr (std::is_same_v<C, float>) {
        if (data == dtype::bf16 && average == own) gate_whole_rows<C, bfloat16, C>(in, b, t0, t1, false, highest);
        if (data == dtype::bf16 && average == data)
          gate_whole_rows<C, bfloat16, bfloat16>(in, b, t0, t1, false, highest);
      }
      return fence_stores();
    }
    lane_tile<C> tiles[most];
    for (index_t i0 = 0; i0 < count; i0 += most) {
      const index_t n = i0 + most < count ? most : count - i0;
      for (index_t i = 0; i < n; ++i) tiles[i] = make_lane_tile<C>(item / row_blocks, 0, p.d, (i0 + i) * L, p.d);
      gate_rows<C>(in, tiles, n, t0, t1, highest);
    }
    fence_stores();
  });
}

/// dq = dy gate'(q) o where lse and average state all rows: neither keys nor weights are read, no scratch is taken.
template <class C>
inline void query_gradient(const backward_problem& call, const cpu& exec) {
  if (is_trial(exec)) return;
  backward_problem p = call;
  if (is_flat(p, {&p.q, &p.lse, &p.average, &p.dy, &p.dq})) p.grid = {1, 1, p.Tq};
  gradient_inputs in;
  in.p = &p;
  in.average = p.average;
  in.from_lse = true;
  gate_gradient<C>(in, exec, nullptr);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
