// SPDX-License-Identifier: Apache-2.0
/// @file window/pack_queries.hpp  The columns [exp(-lse) g | exp(-lse) g o] of a few lane tiles, formed where a window
/// is about to use them.
#pragma once

#include <cmath>
#include <new>

#include "../gemm/pack_queries.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Where g, o and the rows' weights lie, the latter an array or two, or dy, o, lse and q; nothing if not side by side.
template <class C>
[[gnu::noinline]] inline window_lines<C> query_lines(const gradient_inputs& in, const window_tiles<C>& tiles) {
  const backward_problem& p = *in.p;
  const std::array<index_t, 3> flat{1, 1, p.Tq};
  const index_t group = p.d / state_channels(p);
  window_lines<C> lines(p.Tq);
  bool all = !in.state.base_hi.set &&
             (in.gates_later ? lines.add(p.dy, p.grid, tiles, 1) : lines.add(in.g, flat, tiles, 1)) &&
             lines.add(in.average, p.grid, tiles, 1);
  if (in.gates_later) {
    all = all && lines.add(p.lse, p.grid, tiles, 1) && lines.add(p.q, p.grid, tiles, 1);
  } else if (in.from_lse) {
    all = all && lines.add(p.lse, p.grid, tiles, group);
  } else {
    all = all && lines.add(in.state.inverse, flat, tiles, group) && lines.add(in.state.exponent, flat, tiles, group);
  }
  if (!all) lines.clear();
  return lines;
}

/// How far ahead of a chunk that begins with row t0 rows are asked for; chunks come from the last one to the first. Two
/// chunks ahead took 1.02 to 1.04 of the backward call's time, four 1.04.
inline index_t rows_before(index_t t0) {
  return t0 >= column_chunk ? -column_chunk : 0;
}

/// Columns [t0, t1) of tile i from rows as they lie in memory.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void form_query_rows(const window_lines<C>& rows, index_t i, index_t t0,
                                                            index_t t1, C* P, query_packer<C> packer,
                                                            query_range<C>& range) {
  constexpr index_t N = tuning<C>::NR;
  const C *g = rows.at(0, i, t0), *o = rows.at(1, i, t0), *first = rows.at(2, i, t0);
  const C* second = rows.count() > 3 ? rows.at(3, i, t0) : first;
  const index_t g_step = rows.step(0), o_step = rows.step(1), first_step = rows.step(2), second_step = rows.step(3);
  const index_t ahead = rows_before(t0);
  const auto run = [&](const auto& state_of) __attribute__((always_inline)) {
    for (index_t t = t0; t < t1; ++t, P += N, g += g_step, o += o_step, first += first_step, second += second_step) {
      AFT_PREFETCH(g + ahead * g_step, 0, 2);
      AFT_PREFETCH(o + ahead * o_step, 0, 2);
      AFT_PREFETCH(first + ahead * first_step, 0, 2);
      if (rows.count() > 3) AFT_PREFETCH(second + ahead * second_step, 0, 2);
      store_sum(P, packer.form(state_of(), load(g), load(o)));
    }
  };
  const vec<C> zero(C(0));
  if (rows.count() == 3) {
    run([&]() __attribute__((always_inline)) { return state_from_lse<C, true>(load(first)); });
  } else {
    run([&]() __attribute__((always_inline)) { return lane_state<C>{load(first), load(second), zero, zero}; });
  }
  range = packer.range();
}

/// g, dq and the columns of rows of any size.
template <class C>
class gated_packer {
 public:
  gated_packer(const query_scale<C>& scale, query_range<C>& range, C* highest)
      : packer_(scale, range), largest_(highest), range_(&range) {}

  /// The bits of dq are those of gate_whole_rows.
  vec<C> form(const vec<C>& up, const vec<C>& average, const vec<C>& lse, const vec<C>& q, C* P) {
    const vec<C> zero(C(0));
    const auto empty = lse == vec<C>(-std::numeric_limits<C>::infinity());
    const gate_pair<C> gate = gate_detail::sigmoid_pair<C>(q);
    const vec<C> g = xsimd::select(empty, zero, up * gate.value);
    largest_.take(g);
    store_sum(P, packer_.form(state_from_lse<C, true>(lse), g, average));
    return xsimd::select(empty, zero, (up * gate.slope) * average);
  }
  void leave() const {
    largest_.leave();
    *range_ = packer_.range();
  }

 private:
  query_packer<C> packer_;
  largest_size<C> largest_;
  query_range<C>* range_;
};

/// The sizes of rows, lane by lane, and whether ordinary_packer may form them.
template <class C>
struct ordinary_range {
  seen_size<C> lse, g, average, q;

  /// Stricter than what query_scale::settle leaves at scale 1, whose largest g has a factor of up to 2: a
  /// lane's scale must not depend on a neighbour that is not ordinary.
  bool holds() const {
    const vec<C> zero(C(0));
    const auto large = [&](const vec<C>& size, C least) { return size == zero || size >= vec<C>(least); };
    return xsimd::all(lse.within(C(16)) && q.within(near_gate<C>) && large(g.largest(), C(0x1p-19)) &&
                      g.within(C(0x1p19)) && large(average.largest(), C(0x1p-20)) &&
                      average.within(exp_constants<C>::largest));
  }
};

/// The same with scale 1 and without a clamp, in half the instructions, to be proven by the range.
template <class C>
class ordinary_packer {
 public:
  explicit ordinary_packer(ordinary_range<C>& range) : seen_(range), range_(&range) {}

  vec<C> form(const vec<C>& up_or_any, const vec<C>& average_or_any, const vec<C>& lse_or_none, const vec<C>& q_or_any,
              C* P) {
    const vec<C> zero(C(0)), one(C(1));
    // A row that sees no key: zeros, whatever the others hold.
    const auto empty = lse_or_none == vec<C>(-std::numeric_limits<C>::infinity());
    const vec<C> up = xsimd::select(empty, zero, up_or_any), average = xsimd::select(empty, zero, average_or_any);
    const vec<C> lse = xsimd::select(empty, zero, lse_or_none), q = xsimd::select(empty, zero, q_or_any);
    const vec<C> exp_minus = exp_near<C, true>(q, zero);
    const vec<C> value = one / (one + exp_minus);
    const vec<C> g = up * value;
    // The power of two last, as query_packer has it: it rounds what is subnormal.
    const split_exp<C> weight = exp_weight<C>(-lse);
    const vec<C> column = times_pow2<C>(weight.mantissa * g, weight.exponent);
    store(P, column);
    store(P + lanes<C>, column * average);
    seen_.lse.add(lse);
    seen_.g.add(g);
    seen_.average.add(average);
    seen_.q.add(q);
    return (up * (value * (exp_minus * value))) * average;
  }
  void leave() const { *range_ = seen_; }

 private:
  ordinary_range<C> seen_, *range_;
};

/// Rows of dy, o, lse and q, where they lie or staged, and where dq goes; null: not wanted.
template <class C>
struct gated_rows {
  const C *dy = nullptr, *o = nullptr, *lse = nullptr, *q = nullptr;
  index_t dy_step = lanes<C>, o_step = lanes<C>, lse_step = lanes<C>, q_step = lanes<C>;
  index_t ahead = 0;  ///< rows that far are asked for
  written_rows<C> dq{};
};

/// `count` columns of a lane tile; dq on the way.
template <class C, class Packer>
[[gnu::noinline, gnu::flatten]] inline void form_gated_rows(const gated_rows<C>& rows, index_t count, C* P,
                                                            Packer packer) {
  constexpr index_t N = tuning<C>::NR;
  const C *dy = rows.dy, *o = rows.o, *lse = rows.lse, *q = rows.q;
  const index_t dy_step = rows.dy_step, o_step = rows.o_step, lse_step = rows.lse_step, q_step = rows.q_step;
  const index_t ahead = rows.ahead, dq_step = rows.dq.step;
  const bool streamed = rows.dq.streamed;
  C* dq = rows.dq.to;
  for (index_t t = 0; t < count; ++t, P += N, dy += dy_step, o += o_step, lse += lse_step, q += q_step) {
    AFT_PREFETCH(dy + ahead * dy_step, 0, 2);
    AFT_PREFETCH(o + ahead * o_step, 0, 2);
    AFT_PREFETCH(lse + ahead * lse_step, 0, 2);
    AFT_PREFETCH(q + ahead * q_step, 0, 2);
    const vec<C> slope = packer.form(load(dy), load(o), load(lse), load(q), P);
    if (dq == nullptr) continue;
    put(dq, slope, streamed);
    // Chunks come from the last row to the first. What is written through the caches is read before; asked for, 3%
    // less on four shapes.
    if (!streamed && ahead != 0) AFT_PREFETCH(dq - column_chunk * dq_step, 1);
    dq += dq_step;
  }
  packer.leave();
}

/// Rows begin with scale 1, which is right for those of ordinary size.
template <class C>
class window_query_packer final : public window_packer<C> {
 public:
  static constexpr index_t L = lanes<C>;
  static constexpr index_t N = tuning<C>::NR;
  using window_packer<C>::most;

  /// `highest`: where the largest |g| goes, of a call that gates later; `leaves_dq`: this one leaves dq.
  [[gnu::noinline]] window_query_packer(const gradient_inputs& in, const window_tiles<C>& tiles, source_room<C>* room,
                                        C* highest, bool leaves_dq)
      : window_packer<C>(query_lines<C>(in, tiles)), in_(&in), tiles_(&tiles), room_(room), highest_(highest) {
    const backward_problem& p = *in.p;
    leaves_dq_ = in.gates_later && leaves_dq && p.dq.set;
    if (leaves_dq_) {
      const lane_group<C> group(p.dq, p.grid, tiles.at, tiles.count, 1);
      if (group.in_place())
        dq_ = {group.first(), group.step(), lane_field<C>(p.dq, p.grid, tiles.at[0], 1).streams_tiles(p)};
    }
    for (index_t i = 0; i < tiles.count; ++i) {
      tile_state& tile = *::new (room + i) tile_state;
      tile.ordinary = in.gates_later;
    }
  }

  void form(index_t i, index_t t0, index_t t1, C* P, bool measured) override {
    if (in_->gates_later) return form_gated(i, t0, t1, P, measured && leaves_dq_);
    tile_state& tile = state(i);
    const query_packer<C> packer(tile.scale, tile.range);
    if (this->lines().count() > 0) return form_query_rows<C>(this->lines(), i, t0, t1, P, packer, tile.range);
    form_staged(i, t0, t1, P, packer);
  }
  void measure(index_t i, index_t t0, index_t t1) override {
    C anywhere[most * N];
    form(i, t0, t1, anywhere, true);
  }
  bool settled(index_t i, column_scale<C>& cs) override {
    bool as_formed = true;
    tile_state& tile = state(i);
    if (tile.ordinary && tile.sizes.holds()) {
      // Nothing was measured besides, so all scales stay 1.
      if (highest_ != nullptr) store(highest_, (xsimd::max)(load(highest_), tile.sizes.g.largest()));
    } else if (tile.ordinary) {
      tile.ordinary = as_formed = false;
      for (index_t t = 0; t < in_->p->Tq; t += most) measure(i, t, t + most < in_->p->Tq ? t + most : in_->p->Tq);
    }
    return tile.scale.settle(tile.range, cs) && as_formed;
  }

 private:
  struct tile_state {
    bool ordinary;  ///< as far as is known
    ordinary_range<C> sizes;
    query_range<C> range;
    query_scale<C> scale;
  };
  static_assert(sizeof(tile_state) <= sizeof(source_room<C>) && alignof(tile_state) <= alignof(source_room<C>));
  tile_state& state(index_t i) { return *std::launder(reinterpret_cast<tile_state*>(room_ + i)); }

  [[gnu::noinline]] void form_gated(index_t i, index_t t0, index_t t1, C* P, bool write) {
    const backward_problem& p = *in_->p;
    const window_lines<C>& lines = this->lines();
    C staged[5 * most * L];
    gated_rows<C> rows;
    // Of other layouts and types what cannot be used where it lies goes through the first-level cache.
    if (lines.count() == 0) {
      C* to = staged;
      const auto stage = [&](const field& f, C fill) {
        const lane_field<C> from(f, p.grid, tiles_->at[i], 1);
        if (t0 >= most) from.prefetch(t0 - most, t0, p.Tq);
        C* const here = to;
        from.read(t0, t1, here, fill);
        to += most * L;
        return here;
      };
      rows.dy = stage(p.dy, C(0));
      rows.o = stage(in_->average, C(0));
      rows.lse = stage(p.lse, -std::numeric_limits<C>::infinity());
      rows.q = stage(p.q, C(0));
    } else {
      rows = {.dy = lines.at(0, i, t0),
              .o = lines.at(1, i, t0),
              .lse = lines.at(2, i, t0),
              .q = lines.at(3, i, t0),
              .dy_step = lines.step(0),
              .o_step = lines.step(1),
              .lse_step = lines.step(2),
              .q_step = lines.step(3),
              .ahead = rows_before(t0)};
    }
    tile_state& tile = state(i);
    const bool direct = dq_.to != nullptr;
    if (write)
      rows.dq = direct ? written_rows<C>{dq_.to + t0 * dq_.step + i * L, dq_.step, dq_.streamed}
                       : written_rows<C>{staged + 4 * most * L, L, false};
    if (tile.ordinary) {
      form_gated_rows<C>(rows, t1 - t0, P, ordinary_packer<C>(tile.sizes));
    } else {
      form_gated_rows<C>(rows, t1 - t0, P, gated_packer<C>(tile.scale, tile.range, highest_));
    }
    if (write && !direct) {
      const lane_field<C> to(p.dq, p.grid, tiles_->at[i], 1);
      to.write(t0, t1, rows.dq.to);
      if (t0 >= most) to.prefetch(t0 - most, t0, p.Tq, true);
    }
  }

  // Of other layouts and types.
  [[gnu::noinline]] void form_staged(index_t i, index_t t0, index_t t1, C* P, query_packer<C> packer) {
    C buffers[6 * most * L];
    const query_rows<C> up(*in_, tiles_->at + i, 1, t0, t1, buffers, most * L);
    for (index_t t = 0; t < t1 - t0; ++t)
      store_sum(P + t * N, packer.form(up.weights(t, 0, 0), up.g(t, 0, 0), up.o(t, 0, 0)));
    state(i).range = packer.range();
  }

  const gradient_inputs* in_;
  const window_tiles<C>* tiles_;
  source_room<C>* room_;
  C* highest_;
  bool leaves_dq_ = false;
  written_rows<C> dq_;  ///< where its rows lie side by side
};

}  // namespace aft::inline AFT_ISA::cpu_impl
