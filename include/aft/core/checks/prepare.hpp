// SPDX-License-Identifier: Apache-2.0
/// @file checks/prepare.hpp  From a call to a validated problem, the only thing that a backend sees.
#pragma once

#include "bias.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "packed.hpp"
#include "stream.hpp"
#include "votes.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// Axes of a tensor (batch, positions..., channels); rank 2 has no batch axis.
inline std::size_t first_position(const any_view& v) {
  return v.rank() == 2 ? 0 : 1;
}
inline std::size_t channel_axis(const any_view& v) {
  return v.rank() - 1;
}

[[gnu::cold]] inline field to_field(const any_view& v) {
  field f;
  if (v.empty()) return f;
  f.data = static_cast<std::byte*>(v.data());
  f.type = v.type();
  f.set = true;
  f.sb = v.rank() == 2 ? 0 : v.stride(0);
  const std::size_t first = first_position(v);
  const std::size_t positions = channel_axis(v) - first;
  for (std::size_t i = 0; i < positions; ++i) f.sx[3 - positions + i] = v.stride(first + i);
  f.sc = v.stride(channel_axis(v));
  return f;
}

/// The arguments whose query positions, key positions, channels and batch must agree. q is left out when the gate
/// does not read it.
struct participants {
  const argument* queries[2] = {nullptr, nullptr};
  std::size_t query_count = 0;
  const argument* keys[2] = {nullptr, nullptr};
};

inline participants participants_of(const call& c) {
  participants result;
  if (c.opt->gate_fn != gate::none) result.queries[result.query_count++] = &c.q;
  result.queries[result.query_count++] = c.backward ? &c.dy : &c.y;
  result.keys[0] = &c.k;
  result.keys[1] = &c.v;
  return result;
}

inline void add_batch(votes& batch, const argument& a) {
  if (a.view.rank() == 2) {
    batch.add_absent(a);
  } else {
    batch.add(a, 0);
  }
}

/// The argument order of a call decides ties: q, k, v, then the output.
template <class Add>
void for_each_participant(const participants& all, Add&& add) {
  if (all.query_count == 2) add(*all.queries[0]);
  add(*all.keys[0]);
  add(*all.keys[1]);
  add(*all.queries[all.query_count - 1]);
}

[[gnu::cold]] inline void settle_positions(const call& c, const participants& all, problem& p) {
  const std::size_t first = first_position(c.v.view);
  const std::size_t positions = channel_axis(c.v.view) - first;
  // Of a stream the new positions alone are counted here: the bias has the rows of those before too.
  if (streams(c)) {
    votes shared(c.op, "T");
    for_each_participant(all, [&](const argument& a) { shared.add(a, first_position(a.view)); });
    p.Tq = p.Tk = shared.settle();
    p.grid = {1, 1, p.Tq};
    return;
  }
  if (c.cross_lengths) {
    votes queries(c.op, "Tq");
    if (all.query_count == 2) queries.add(*all.queries[0], first_position(all.queries[0]->view));
    queries.add(*all.queries[all.query_count - 1], first_position(all.queries[all.query_count - 1]->view));
    // A bias counts rows from the beginning of a sequence, whose length is not known yet.
    if (!is_packed(c)) add_bias_queries(queries, c.bias);
    // Where two tensors alone disagree, self-attention is likelier than cross attention.
    if (c.opt->first_query == 0) queries.expect(c.v.view.extent(first));
    p.Tq = queries.settle();
    votes keys(c.op, "Tk");
    for (const argument* a : all.keys) keys.add(*a, first_position(a->view));
    if (!is_packed(c)) add_bias_keys(keys, c.bias);
    if (c.opt->first_query == 0) keys.expect(p.Tq);
    p.Tk = keys.settle();
    p.grid = {1, 1, p.Tq};
    return;
  }
  static constexpr const char* names[] = {"D", "H", "W"};
  p.grid = {1, 1, 1};
  for (std::size_t i = 0; i < positions; ++i) {
    votes shared(c.op, positions == 1 ? "T" : names[3 - positions + i]);
    for_each_participant(all, [&](const argument& a) { shared.add(a, first_position(a.view) + i); });
    add_bias_queries(shared, c.bias);
    add_bias_keys(shared, c.bias);
    p.grid[3 - positions + i] = shared.settle();
  }
  p.Tq = p.Tk = p.grid[0] * p.grid[1] * p.grid[2];
}

[[gnu::cold]] inline void settle_extents(const call& c, problem& p) {
  const participants all = participants_of(c);
  votes batch(c.op, "B");
  for_each_participant(all, [&](const argument& a) { add_batch(batch, a); });
  p.B = batch.settle();
  settle_positions(c, all, p);
  votes channels(c.op, "d");
  for_each_participant(all, [&](const argument& a) {
    if (&a != &c.k) channels.add(a, channel_axis(a.view));
  });
  p.d = channels.settle();
  p.hk = c.k.view.extent(channel_axis(c.k.view));
  require_divides(c.op, c.k, channel_axis(c.k.view), "hk", p.d);
  // Without a channel of v nothing would come of a key: neither a lse nor a gradient.
  if (p.d == 0) require_extent(c.op, c.k, channel_axis(c.k.view), "hk", 0);
}

/// A gradient has exactly the extents of the tensor it belongs to; rank 2 stands for a batch of one.
[[gnu::cold]] inline void require_gradient(const call& c, const argument& a, const problem& p, index_t positions,
                                           index_t channels) {
  if (!a.given()) return;
  const any_view& v = a.view;
  if (v.rank() != 2) {
    require_extent(c.op, a, 0, "B", p.B);
  } else if (p.B != 1) {
    fail(c.op, a, text("a batch axis (B) of ") << p.B, "a rank-2 view");
  }
  const std::size_t first = first_position(v);
  const std::size_t axes = channel_axis(v) - first;
  static constexpr const char* names[] = {"D", "H", "W"};
  for (std::size_t i = 0; i < axes; ++i) {
    require_extent(c.op, a, first + i, axes == 1 ? "T" : names[3 - axes + i],
                   axes == 1 ? positions : p.grid[3 - axes + i]);
  }
  require_extent(c.op, a, channel_axis(v), channels == p.d ? "d" : "hk", channels);
}

/// A window as it can be written.
[[gnu::cold]] inline text window_text(index_t before, index_t after) {
  return text("window{") << before << ", " << after << "}";
}

[[gnu::cold]] inline void set_window(const call& c, problem& p) {
  if (!c.windowed) return;
  constexpr index_t most = furthest_position;
  const index_t before = c.win.before;
  const index_t after = c.win.after;
  if (before < -most || before > most || after < -most || after > most) {
    fail(c.op, {"window"}, "before and after within 2^61", window_text(before, after));
  }
  if (before + after + 1 < 0) {
    fail(c.op, {"window"}, "before + after + 1, the number of keys, to be at least 0",
         window_text(before, after) << ", which has " << before + after + 1);
  }
  place_window(p, {true, before, after}, c.opt->first_query, c.bias.kind == bias_kind::banded || streams(c));
}

/// Only an operator with a window or a filter has an outside.
[[gnu::cold]] inline void require_outside(const call& c) {
  if (c.windowed || c.bias.kind == bias_kind::filter || c.sparse || c.opt->outside == outside::zero_bias) return;
  fail(c.op, {"outside"}, "zero_bias, as only aft::local and aft::conv have pairs outside a window or filter",
       "excluded");
}

inline void set_visibility(const call& c, problem& p) {
  place_diagonal(p, c.opt->causal, c.opt->first_query);
  p.narrow_products = c.opt->arithmetic == arithmetic::automatic;
  p.excluded = (c.windowed || c.bias.kind == bias_kind::filter || c.sparse) && c.opt->outside == outside::excluded;
}

/// Checks everything and only then builds the problem: a shape_error leaves every output as it was.
[[gnu::cold]] inline backward_problem prepare(call& c) {
  sum_broadcast_axes(c.bias, c.dbias);
  require_outside(c);
  require_first_query(c, channel_axis(c.v.view) - first_position(c.v.view));
  require_offsets(c);
  require_sparse_call(c);
  require_streamed_call(c, channel_axis(c.v.view) - first_position(c.v.view));
  if (streams(c)) c.sequences->stream_bytes.view = bytes_of(c.opt->stream);
  require_sane_all(c);
  backward_problem p;
  settle_extents(c, p);
  if (is_packed(c)) set_sequences(c, p);
  set_window(c, p);
  set_visibility(c, p);
  p.gate_fn = c.opt->gate_fn;
  p.bias = to_bias_ref(c, c.bias, p);
  set_filter_geometry(c, p);
  require_gradient(c, c.dq, p, p.Tq, p.d);
  require_gradient(c, c.dk, p, p.Tk, p.hk);
  require_gradient(c, c.dv, p, p.Tk, p.d);
  require_bias_gradient(c);
  require_options(c, p);
  require_memory(c);
  require_taps(c, p);

  if (p.gate_fn != gate::none) p.q = to_field(c.q.view);
  p.k = to_field(c.k.view);
  p.v = to_field(c.v.view);
  p.y = to_field(c.y.view);
  p.lse = to_field(c.lse.view);
  p.average = to_field(c.average.view);
  set_mask(c, p);
  set_stream(c, p);
  p.dy = to_field(c.dy.view);
  p.dq = to_field(c.dq.view);
  p.dk = to_field(c.dk.view);
  p.dv = to_field(c.dv.view);
  if (c.dbias.kind != bias_kind::none) p.dbias = to_bias_ref(c, c.dbias, p);
  return p;
}

/// For an executor that is made of another the call as it is: its runner checks it.
template <class E>
decltype(auto) prepare(call& c, const E& exec) {
  if constexpr (executor<E>) {
    require_executor(c.op, exec);
    return prepare(c);
  } else {
    return (c);
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
