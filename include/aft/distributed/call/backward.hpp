// SPDX-License-Identifier: Apache-2.0
/// @file call/backward.hpp  Gradients over several ranks.
#pragma once

#include "forward.hpp"
#include "../exchange/returns.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// What a backward call needs memory for; taken before data moves.
template <class C>
struct backward_memory {
  placement at;
  near_keys keys;
  own_keys<C> own;
  one_average<C> joint;
  piece_sums<C> pieces;
  bias_gradient_part<C> bias;
  key_returns<C> returns;
  std::optional<staged_operands<C>> staged{};
  buffer<double> lift{};  ///< see stage_incoming
  buffer<C> y{}, dy{}, dq{}, dk{}, dv{}, row{};

  explicit backward_memory(const part& x)
      : at(x), keys(x), own(x, true), joint(x), pieces(x), bias(x, at.base, at.keys), returns(x) {
    const backward_problem& p = x.local;
    if (x.has_one_average()) return;
    if (x.pieces.any) {
      if (returns.wanted()) pieces.take_gradients();
      return;
    }
    const bool gives_sums = returns.gives_sums();
    if (x.works_on_copies()) staged.emplace(x, at);
    const index_t pairs = staged ? staged->pairs : 1;
    const bool for_stand_in = gives_sums && x.has_stand_in();
    dk = {x.kernel_memory, p.dk.set ? p.B * at.keys * p.hk : 0};
    dv = {x.kernel_memory, p.dv.set || for_stand_in ? p.B * at.keys * p.d * pairs : 0};
    if (!staged) return;
    lift = {x.memory, p.B};
    dy = {x.kernel_memory, p.B * at.queries * p.d * pairs};
    if (at.stand_in) y = {x.kernel_memory, dy.size()};
    if (p.dq.set) dq = {x.kernel_memory, dy.size()};
    row = {x.memory, p.d};
  }
};

/// The kernels' share of the rows, by one forward call: averages with the stand-in, and its weight.
template <class C>
void find_shares(const part& x, const backward_memory<C>& m, const kernels& run) {
  moved_rows moved;
  problem p = x.local;
  place_rows(x, m.at, p, moved);
  m.staged->set_probe([](index_t) { return C(1); });
  m.staged->set_operands(p);
  p.q = field{};
  p.gate_fn = gate::none;
  p.y = contiguous(m.y.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  run.forward(p);
}

/// Incoming gradients for the kernels. With Z of join_row a weight of the whole is the kernels' a / Z, so that dy / Z
/// gives the whole's dv. dk and dw have v - average, and the kernels' average A is too large by (A - x)(Z - 1) / Z: the
/// second channels, whose average is -(Z - 1) and whose value is 0, add just that. They are multiplied by a
/// batch element's `lift`, and their average divided by it. False where one had to be made smaller: then all is to be
/// staged again.
template <class C>
bool stage_incoming(const part& x, const backward_memory<C>& m) {
  const backward_problem& p = x.local;
  const index_t pairs = m.staged->pairs;
  bool fits = true;
  m.dy.fill(C(0));
  m.staged->for_each_row([&](index_t b, index_t t, index_t row) {
    if (x.pads(b, t)) return;
    C* const to = m.dy.data() + row * p.d * pairs;
    load_row(row_at(p.dy, p.grid, b, t), p.dy.type, p.dy.sc, p.d, to, pairs);
    if (pairs == 1) return;
    const C* const y = m.y.data() + row * p.d * 2;
    const double *const more = m.staged->more.data() + b * p.d, *const far_part = m.staged->average.data() + b * p.d;
    for (index_t c = 0; c < p.d; ++c) {
      const double A = static_cast<double>(y[2 * c]), inverse = 1 / (1 + more[c] * static_cast<double>(y[2 * c + 1]));
      const double scaled = static_cast<double>(to[2 * c]) * inverse;
      // An infinite value among the keys makes A infinite, which says it all: a difference would be NaN.
      const bool finite = A - A == 0 && far_part[c] - far_part[c] == 0;
      to[2 * c] = static_cast<C>(scaled);
      const double second = finite ? m.lift[b] * scaled * (A * inverse - far_part[c] * inverse) : 0;
      to[2 * c + 1] = static_cast<C>(second);
      // With room for a gate, by which the kernels multiply it.
      const double most = static_cast<double>((std::numeric_limits<C>::max)()) * 0x1p-24;
      if (std::isfinite(scaled) && std::fabs(second) > most && m.lift[b] == 1) {
        m.lift[b] = 0x1p-60;
        fits = false;
      }
    }
  });
  return fits;
}

/// dq = dy gate'(q) average: the kernels' two channels of a pair are its two parts, over Z.
template <class C>
void write_query_gradient(const part& x, const backward_memory<C>& m) {
  const backward_problem& p = x.local;
  const index_t pairs = m.staged->pairs;
  m.staged->for_each_row([&](index_t b, index_t t, index_t row) {
    const C* dq = m.dq.data() + row * p.d * pairs;
    if (x.pads(b, t)) {
      for (index_t c = 0; c < p.d; ++c) m.row[c] = C(0);
      dq = m.row.data();
    } else if (pairs == 2) {
      const C* const y = m.y.data() + row * p.d * 2;
      const double* const more = m.staged->more.data() + b * p.d;
      for (index_t c = 0; c < p.d; ++c) {
        const double Z = 1 + more[c] * static_cast<double>(y[2 * c + 1]);
        m.row[c] = static_cast<C>(Z * (static_cast<double>(dq[2 * c]) + static_cast<double>(dq[2 * c + 1])));
      }
      dq = m.row.data();
    }
    store_row(dq, row_at(p.dq, p.grid, b, t), p.dq.type, p.dq.sc, p.d);
  });
}

/// What this rank's rows give to its far keys, from the stand-in's dv; then the first channels of dv side by side.
template <class C>
void split_value_gradient(const part& x, const backward_memory<C>& m) {
  const backward_problem& p = x.local;
  if (m.returns.gives_sums()) {
    const far_gradient far_part = m.returns.own_far();
    const far_sum sums = m.keys.total();
    const index_t cell = m.at.stand_in_cell(x), group = p.hk > 0 ? p.d / p.hk : 0;
    for (index_t b = 0; b < p.B; ++b) {
      const C* const dv = m.dv.data() + (b * m.at.keys + cell) * p.d * 2;
      for (index_t i = b * p.hk, c = 0; i < (b + 1) * p.hk; ++i) {
        const far_unit unit = sums.unit(i);
        far_part.max[i] = unit.max;
        for (const index_t end = c + group; c < end; ++c) {
          double &slope = far_part.slope[b * p.d + c], &offset = far_part.offset[b * p.d + c];
          slope = static_cast<double>(dv[2 * c]) / unit.times;
          offset = m.staged->average[b * p.d + c] * slope + static_cast<double>(dv[2 * c + 1]) / m.lift[b] / unit.times;
        }
      }
    }
  }
  if (m.staged->pairs == 1) return;
  for (index_t i = 0; 2 * i < m.dv.size(); ++i) m.dv[i] = m.dv[2 * i];
}

/// Far keys as the kernels join them, and where what their gradients follow from goes.
template <class C>
void place_far_keys(const backward_memory<C>& m, backward_problem& p) {
  const far_sum sums = m.keys.total();
  p.afar = sums.in_kernels(far_kind::rows);
  if (!m.returns.gives_sums()) return;
  const far_gradient to = m.returns.own_far();
  std::memcpy(to.max, sums.max, static_cast<std::size_t>(to.keys) * sizeof(double));
  p.afar.slope = to.slope;
  p.afar.offset = to.offset;
}

/// The kernels' part of a call: gradients of this rank's rows.
template <class C>
void run_near_backward(const part& x, backward_memory<C>& m, const kernels& run) {
  if (x.has_one_average()) {
    const far_gradient far_part = m.returns.own_far();
    m.joint.set(m.keys.total());
    return m.joint.run_backward(run, m.keys.total(), m.returns.gives_sums() ? &far_part : nullptr);
  }
  moved_rows moved;
  backward_problem p = x.local;
  place_rows(x, m.at, p, moved);
  if (p.dbias.kind != bias_kind::none) m.bias.place(p.dbias);
  if (m.staged) {
    const staged_operands<C>& staged = *m.staged;
    const far_sum far_part = m.keys.total();
    staged.fill(m.keys.before.k, m.keys.before.v, m.at.stand_in ? &far_part : nullptr);
    staged.fill_queries();
    if (m.at.stand_in) find_shares(x, m, run);
    m.lift.fill(1);
    if (!stage_incoming(x, m)) stage_incoming(x, m);
    staged.set_probe([&](index_t i) { return static_cast<C>(-staged.more[i] / m.lift[i / p.d]); });
    staged.set_operands(p);
    // find_shares asked a generated bias once, and four times is what its owner was promised.
    p.folds_once = p.bias.kind == bias_kind::generated;
    p.dy = contiguous(m.dy.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
    if (p.dq.set) p.dq = contiguous(m.dq.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  } else {
    set_keys(m.at, keys_of(x, m.keys.before), values_of(x, m.keys.before), p);
    if (x.where.has_far(x.rank)) place_far_keys(m, p);
  }
  const std::array<index_t, 3> keys = x.grid ? m.at.grid : std::array<index_t, 3>{1, 1, m.at.keys};
  p.dk = p.dv = field{};
  if (m.dk.size() > 0) p.dk = contiguous(m.dk.data(), dtype_of<C>, keys, m.at.keys, p.hk);
  if (m.dv.size() > 0) p.dv = contiguous(m.dv.data(), dtype_of<C>, keys, m.at.keys, p.d);
  run.backward(p);
  if (!m.staged) return;
  if (p.dq.set) write_query_gradient(x, m);
  if (m.dv.size() > 0) split_value_gradient(x, m);
}

/// The kernels' part of a call whose rows go by pieces. All rows first: of those at the edges, which are padding then,
/// they write zeros.
template <class C>
void run_backward_by_pieces(const part& x, backward_memory<C>& m, const kernels& run, const communicator_ref& ranks) {
  const auto run_piece = [&](piece i) {
    backward_problem p = x.local;
    moved_rows moved;
    if (!m.pieces.place(i, m.keys, p, moved)) return;
    m.pieces.place_gradients(i, m.returns.dk(), m.returns.dv(), p);
    if (p.dbias.kind == bias_kind::filter) m.bias.place_piece(p.dbias, static_cast<index_t>(i));
    run.backward(p);
  };
  const bool apart = m.pieces.all_wait_for_none();
  if (!apart) m.keys.finish(ranks);
  m.pieces.find_sum_of_all(m.keys, m.own, run);
  m.pieces.make_room(piece::all);
  run_piece(piece::all);
  if (apart) m.keys.finish(ranks);
  m.pieces.find_sums_of_edges(m.keys, m.own, run);
  for (const piece i : {piece::first, piece::last}) m.pieces.make_room(i);
  run_piece(piece::first);
  run_piece(piece::last);
  m.bias.join_pieces();
  if (!m.returns.wanted()) return;
  m.pieces.spread_over_others(m.keys, m.own, run);
  if (m.returns.gives_sums()) m.pieces.join_gradients(m.returns.own_far());
}

/// Every rank's gradients. What each receives: as forward, then see key_returns and bias_gradient_part::sum.
template <class C>
[[gnu::noinline]] void run_cut_backward(const part& x, backward_memory<C>& m, const kernels& run,
                                        const communicator_ref& ranks) {
  m.keys.begin(ranks);
  m.keys.gather_sums(m.own, run, ranks);
  // A stand-in's own weight would be lost.
  if (x.where.has_far(x.rank) && (x.has_one_average() || !x.has_stand_in())) m.keys.total().make_room();
  if (x.pieces.any) {
    run_backward_by_pieces(x, m, run, ranks);
    m.returns.exchange(m.pieces.near_gradients_of(), m.keys, m.pieces.rests(), m.own, run, ranks, m.bias.key_sum());
    return m.bias.sum(ranks);
  }
  m.keys.finish(ranks);
  if (x.queries().count() > 0) run_near_backward(x, m, run);
  const problem& p = x.local;
  const index_t base = m.at.base * x.inner;
  const auto block = [&](const buffer<C>& rows, bool wanted, index_t channels) {
    if (!wanted || rows.size() == 0) return row_block{};
    return row_block{reinterpret_cast<std::byte*>(rows.data()), p.B, m.at.keys,
                     channels * static_cast<index_t>(sizeof(C)), base};
  };
  const near_gradients own{x.near_keys(), block(m.dk, x.local.dk.set, p.hk), block(m.dv, x.local.dv.set, p.d),
                           m.bias.key_rows()};
  const far_gradient none(nullptr, p);
  m.returns.exchange({own, {}}, m.keys, {none, none}, m.own, run, ranks, m.bias.key_sum());
  m.bias.clear_far_columns(run);
  m.bias.sum(ranks);
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
