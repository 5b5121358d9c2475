// SPDX-License-Identifier: Apache-2.0
/// @file stencil/backward/rows.hpp  What the gradients of one lane tile start from: g = dy gate(q), o, and the rows'
/// weights.
#pragma once

#include "../../math/gates.hpp"
#include "../../softmax/padding.hpp"
#include "../../tensor/lane_rows.hpp"
#include "../store.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Per query and lane, [t][lane]. The last four are a row's weight as row_state has it.
template <class C>
struct incoming_rows {
  C* g = nullptr;
  C* o = nullptr;
  C* inverse = nullptr;
  C* exponent = nullptr;
  C* base_hi = nullptr;
  C* base_lo = nullptr;

  void take(index_t T, scratch& memory) {
    for (C** const at : {&g, &o, &inverse, &exponent, &base_hi, &base_lo}) *at = memory.take<C>(T * lanes<C>);
  }
};

/// What the gradients of a lane tile read, and where dq goes.
template <class C>
struct gradient_fields : query_inputs<C> {
  const backward_problem& p;
  const lane_tile<C>& tile;
  lane_rows<C> dy, average, lse, dq;

  gradient_fields(const backward_problem& from, const lane_tile<C>& of)
      : query_inputs<C>(from, of),
        p(from),
        tile(of),
        dy(p.dy, p.grid, tile, 1),
        average(p.average, p.grid, tile, 1),
        lse(p.lse, p.grid, tile, p.d / p.hk),
        dq(p.dq, p.grid, tile, 1) {}

  /// Asks for rows of all inputs of `count` tiles from this one on, while another tile is worked on.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t count) const {
    if (count == 0) return;
    query_inputs<C>::prefetch(t0, t1, count);
    dy.prefetch(t0, t1, count);
    average.prefetch(t0, t1, count);
    lse.prefetch(t0, t1, count);
  }
};

/// Fills o and the weights of queries [t0, t1) from the caller's lse and average.
template <class C>
[[gnu::noinline]] void read_saved(const gradient_fields<C>& fields, const incoming_rows<C>& rows, index_t t0,
                                  index_t t1) {
  constexpr index_t L = lanes<C>;
  fields.average.read(t0, t1, rows.o + t0 * L);
  fields.lse.read(t0, t1, rows.inverse + t0 * L);
  const index_t at = t0 * L;
  states_from_lse<C>((t1 - t0) * L, rows.inverse + at, rows.exponent + at, rows.base_hi + at, rows.base_lo + at);
}

/// Fills o and the weights by the forward fold.
template <class C>
inline void recompute(const query_fold<C>& fold, const C* P, box_complement<C>& rest, query_block<C>& block,
                      const incoming_rows<C>& rows) {
  constexpr index_t L = lanes<C>;
  const auto keep = [&](index_t t0, index_t t1, const query_block<C>& from) {
    for (index_t i = 0; i < (t1 - t0) * L; i += L) {
      store(rows.o + t0 * L + i, load(from.average + i));
      store(rows.inverse + t0 * L + i, load(from.inverse + i));
      store(rows.exponent + t0 * L + i, load(from.exponent + i));
      store(rows.base_hi + t0 * L + i, load(from.base_hi + i));
      store(rows.base_lo + t0 * L + i, load(from.base_lo + i));
    }
  };
  fold_queries<C>(fold, query_results::state, P, gate_inputs<C>{}, rest, block, keep, [](index_t) {});
}

/// g = dy gate(q) and dq = dy gate'(q) o of queries [t0, t1). Rows that see no key get g = o = dq = 0, whatever dy
/// holds there. `block` lends its buffers.
template <class C>
[[gnu::flatten]] inline void fill_incoming(const gradient_fields<C>& fields, query_block<C>& block,
                                           const incoming_rows<C>& rows, index_t t0, index_t t1, bool write_dq = true) {
  constexpr index_t L = lanes<C>;
  const backward_problem& p = fields.p;
  const vec<C> zero(C(0));
  C* const q = block.average;
  C* const dq = block.lse;
  if (p.pads_queries()) empty_padding<C>(p, fields.tile, t0, t1, rows.inverse + t0 * L);
  fields.dy.read(t0, t1, rows.g + t0 * L);
  if (p.gate_fn != gate::none) fields.q.read(t0, t1, q);
  const auto apply = [&](const auto& both) __attribute__((always_inline)) {
    for (index_t i = 0; i < (t1 - t0) * L; i += L) {
      const index_t at = t0 * L + i;
      const auto empty = load(rows.inverse + at) == zero;
      const vec<C> dy = load(rows.g + at);
      const vec<C> o = xsimd::select(empty, zero, load(rows.o + at));
      const gate_pair<C> gate_of = both(i);
      store(rows.o + at, o);
      store(rows.g + at, xsimd::select(empty, zero, dy * gate_of.value));
      store(dq + i, xsimd::select(empty, zero, dy * gate_of.slope * o));
    }
  };
  if (p.gate_fn == gate::sigmoid) {  // the default is worth a loop without a switch
    apply([&](index_t i) __attribute__((always_inline)) { return gate_detail::sigmoid_pair<C>(load(q + i)); });
  } else if (p.gate_fn != gate::none) {
    apply([&](index_t i) { return gate_both<C>(p.gate_fn, load(q + i)); });
  } else {
    for (index_t i = 0; i < (t1 - t0) * L; i += L) {
      const index_t at = t0 * L + i;
      const auto empty = load(rows.inverse + at) == zero;
      store(rows.o + at, xsimd::select(empty, zero, load(rows.o + at)));
      store(rows.g + at, xsimd::select(empty, zero, load(rows.g + at)));
      store(dq + i, zero);
    }
  }
  if (p.dq.set && write_dq) fields.dq.write(p, t0, t1, dq);
}

/// Beside a sharp table the largest X of a payload is 2 to this power: X of rows at the border is as far above the
/// others as their sums are below. Both together leave room for a million terms of 500 channels.
template <class C>
inline constexpr C payload_units = sizeof(C) == 4 ? C(32) : C(320);

/// Q[t] = [X g, X g o], X = exp(-lse), as the transposed fold takes them, and what they were scaled by.
template <class C>
struct payload_scales {
  C exponent[lanes<C>];       ///< X was divided by 2^exponent
  C inverse_scale[lanes<C>];  ///< of g
  C usable[lanes<C>];         ///< 0: the lane is left to the exact path
  C all_zero[lanes<C>];       ///< 1: every g or every v is 0, and so are all sums with both
  C lost[lanes<C>];           ///< bounds of sums are so many times as high, see payload_losses
};

/// Whether something of keys, of a payload or of a sharp table underflowed that another would have made to count.
template <class C>
class payload_losses {
 public:
  explicit payload_losses(const stencil_table<C>& table) : table_(table) {}

  /// The keys of a lane, as loses_keys takes them.
  void add_keys(const column_scales<C>& cs, index_t lane, const C* weights, index_t keys) {
    if (table_.sharp[lane] != C(0) && loses_keys<C>(cs, lane, weights, keys)) keys_lose_[lane] = C(1);
  }
  /// The payload of query t.
  [[gnu::always_inline]] void add(const incoming_rows<C>& rows, index_t t, const vec<C>& g, const vec<C>& go) {
    if (!table_.any_sharp) return;
    const vec<C> zero(C(0)), least(sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-800));
    const auto is_zero = [&](const C* of) { return load(of + t * lanes<C>) == zero; };
    const auto counts = !is_zero(rows.inverse) && !is_zero(rows.g);
    const auto tiny = ((xsimd::abs)(g) < least) || (!is_zero(rows.o) && ((xsimd::abs)(go) < least));
    loses_ = xsimd::select(counts && tiny, vec<C>(C(1)), loses_);
  }
  void write(payload_scales<C>& ps) const {
    const vec<C> zero(C(0)), one(C(1));
    const auto loses = (loses_ > zero) || (load(keys_lose_) > zero) || (load(table_.dropped) > zero);
    const auto raised = loses && (load(table_.sharp) > zero);
    store(ps.lost, xsimd::select(raised, vec<C>(raised_bounds<C>), one));
  }

 private:
  const stencil_table<C>& table_;
  vec<C> loses_ = vec<C>(C(0));
  C keys_lose_[lanes<C>] = {};
};

/// Fills `ps`, and `by` with the inverse of its inverse scale.
template <class C>
[[gnu::noinline]] void measure_payload(const problem& p, const stencil_table<C>& table, const incoming_rows<C>& rows,
                                       const column_scales<C>& cs, C* by, payload_scales<C>& ps) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const vec<C> zero(C(0)), one(C(1));
  vec<C> top(-inf), high(zero), beyond(zero);
  for (index_t i = 0; i < p.Tq * L; i += L) {
    const auto empty = load(rows.inverse + i) == zero;
    const vec<C> exponent = -load(rows.exponent + i);
    const vec<C> size = (xsimd::abs)(load(rows.g + i));
    top = xsimd::select(!empty && (exponent > top), exponent, top);
    high = xsimd::select((size > high) && (size < vec<C>(inf)), size, high);
    beyond = xsimd::select(load(rows.base_hi + i) == zero, beyond, one);
  }
  C max_abs[L];
  store(max_abs, high);
  for (index_t l = 0; l < L; ++l) value_scale(max_abs[l], by[l], ps.inverse_scale[l]);
  top = xsimd::select(top > vec<C>(-inf), top, zero);
  store(ps.exponent, top - load(table.sharp) * vec<C>(payload_units<C>));
  store(ps.all_zero, xsimd::select(high == zero, one, load(cs.all_zero)));
  store(ps.usable, xsimd::select(beyond == zero, load(cs.usable), zero));
}

/// put(t, X g, X g o) for every query, scaled by what measure_payload found.
template <class C, class Put>
[[gnu::always_inline]] inline void weigh_payload(const problem& p, const incoming_rows<C>& rows,
                                                 const column_scales<C>& cs, const C* by, const payload_scales<C>& ps,
                                                 const Put& put) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0)), top = load(ps.exponent), scale = load(by), value_scale = load(cs.scale);
  for (index_t t = 0; t < p.Tq; ++t) {
    const vec<C> inverse = load(rows.inverse + t * L);
    const vec<C> weight = inverse * pow2<C>(-load(rows.exponent + t * L) - top);
    const vec<C> g = xsimd::select(inverse == zero, zero, weight * (load(rows.g + t * L) * scale));
    put(t, g, xsimd::select(inverse == zero, zero, g * (load(rows.o + t * L) * value_scale)));
  }
}

template <class C>
inline void fill_payload(const problem& p, const stencil_table<C>& table, const incoming_rows<C>& rows,
                         const column_scales<C>& cs, const C* P, C* Q, payload_scales<C>& ps) {
  constexpr index_t L = lanes<C>;
  C by[L];
  measure_payload<C>(p, table, rows, cs, by, ps);
  weigh_payload<C>(p, rows, cs, by, ps, [&](index_t t, const vec<C>& g, const vec<C>& go) {
    store(Q + t * 2 * L, g);
    store(Q + t * 2 * L + L, go);
  });
  store(ps.lost, vec<C>(C(1)));
  if (!table.any_sharp) return;
  payload_losses<C> losses(table);
  for (index_t l = 0; l < L; ++l) losses.add_keys(cs, l, P + L + l, p.Tk);
  for (index_t t = 0; t < p.Tq; ++t) losses.add(rows, t, load(Q + t * 2 * L), load(Q + t * 2 * L + L));
  losses.write(ps);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
