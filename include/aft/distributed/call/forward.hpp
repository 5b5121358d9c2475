// SPDX-License-Identifier: Apache-2.0
/// @file call/forward.hpp  A forward call over several ranks.
#pragma once

#include "one_average.hpp"
#include "piece_problem.hpp"

#include <optional>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// What a forward call needs memory for; taken before data moves.
template <class C>
struct forward_memory {
  placement at;
  near_keys keys;
  own_keys<C> own;
  one_average<C> joint;
  piece_sums<C> pieces;
  std::optional<staged_operands<C>> staged{};
  buffer<C> y{}, average{}, lse{}, row{};

  explicit forward_memory(const part& x) : at(x), keys(x), own(x, false), joint(x), pieces(x) {
    const problem& p = x.local;
    if (!x.works_on_copies()) return;
    staged.emplace(x, at);
    const index_t numbers = p.B * at.queries * p.d * staged->pairs;
    y = {x.kernel_memory, numbers};
    if (p.gate_fn != gate::none) average = {x.kernel_memory, numbers};
    if (p.lse.set) lse = {x.kernel_memory, p.B * at.queries * p.hk};
    row = {x.memory, p.d};
  }
};

/// One row of averages, gated or not, with all keys. Of the kernels' pairs (A, P) the second is the stand-in's weight,
/// or that and the gate; `shares` are the same without a gate. With all far keys the row's sum is Z = 1 + more P times
/// the kernels', and more P of it is theirs with the average x.
template <class C>
void join_row(const C* pairs, const C* shares, const double* more, const double* x, index_t n, C* to) {
  for (index_t c = 0; c < n; ++c) {
    const double P = static_cast<double>(shares[2 * c + 1]), Z = 1 + more[c] * P;
    // Divided first: of values at the end of the range no product may be taken.
    const double far_part = x[c] * (more[c] * static_cast<double>(pairs[2 * c + 1]) / Z);
    double joint = static_cast<double>(pairs[2 * c]) / Z + far_part;
    // A gate may take the kernels' own part out of the range and the row not: then it comes last.
    if (!(std::fabs(joint) <= static_cast<double>((std::numeric_limits<C>::max)())) && P > 0)
      joint = static_cast<double>(pairs[2 * c + 1]) / P *
              (static_cast<double>(shares[2 * c]) / Z + x[c] * (more[c] * P / Z));
    to[c] = static_cast<C>(joint);
  }
}

/// The kernels' results of the rows with a stand-in, or on a grid, as the caller's.
template <class C>
void write_results(const part& x, const forward_memory<C>& m) {
  const problem& p = x.local;
  const index_t group = p.hk > 0 ? p.d / p.hk : 0, pairs = m.staged->pairs;
  const C* const averages = p.gate_fn != gate::none ? m.average.data() : m.y.data();
  const auto write = [&](const field& to, index_t b, index_t t, const C* row, index_t n) {
    store_row(row, row_at(to, p.grid, b, t), to.type, to.sc, n);
  };
  m.staged->for_each_row([&](index_t b, index_t t, index_t row) {
    const C* const average = averages + row * p.d * pairs;
    const double *const more = m.staged->more.data() + b * p.d, *const far_part = m.staged->average.data() + b * p.d;
    const auto write_joint = [&](const field& to, const C* of) {
      if (!to.set) return;
      if (x.pads(b, t)) {
        for (index_t c = 0; c < p.d; ++c) m.row[c] = C(0);
      } else if (pairs == 2) {
        join_row(of, average, more, far_part, p.d, m.row.data());
      }
      write(to, b, t, pairs == 2 || x.pads(b, t) ? m.row.data() : of, p.d);
    };
    write_joint(p.y, m.y.data() + row * p.d * pairs);
    write_joint(p.average, average);
    if (!p.lse.set) return;
    for (index_t c = 0; c < p.hk; ++c) {
      double lse = static_cast<double>(m.lse[row * p.hk + c]);
      if (pairs == 2) lse += std::log(1 + more[c * group] * static_cast<double>(average[2 * c * group + 1]));
      m.row[c] = x.pads(b, t) ? -std::numeric_limits<C>::infinity() : static_cast<C>(lse);
    }
    write(p.lse, b, t, m.row.data(), p.hk);
  });
}

/// Rows that go by pieces: those that reach for no other rank's keys while these are on their way.
template <class C>
void run_pieces(const part& x, forward_memory<C>& m, const kernels& run, const communicator_ref& ranks) {
  const auto run_piece = [&](piece i) {
    problem p = x.local;
    moved_rows moved;
    if (!m.pieces.place(i, m.keys, p, moved)) return;
    m.pieces.place_queries(i, p);
    run.forward(p);
  };
  m.pieces.keep_queries();
  const bool apart = m.pieces.all_wait_for_none();
  if (!apart) m.keys.finish(ranks);
  m.pieces.find_sum_of_all(m.keys, m.own, run);
  run_piece(piece::all);
  if (apart) m.keys.finish(ranks);
  m.pieces.find_sums_of_edges(m.keys, m.own, run);
  run_piece(piece::first);
  run_piece(piece::last);
}

/// Rows that see every key, in the kernels' own problem, some batch elements while the keys of others are on their way.
template <class C>
void run_blocks(const part& x, forward_memory<C>& m, const problem& all, const kernels& run,
                const communicator_ref& ranks) {
  const index_t blocks = x.asks_once() ? 1 : m.keys.blocks();
  if (blocks == 1) m.keys.finish(ranks);
  for (index_t i = 0; i < blocks; ++i) {
    problem p = all;
    if (blocks > 1) {
      m.keys.wait_for_block();
      m.keys.start_block(i + 1, ranks);
      take_batches(p, m.keys.block(i));
    }
    if (x.queries().count() > 0) run.forward(p);
  }
}

/// Every rank's rows. What each receives: see near_keys.
template <class C>
[[gnu::noinline]] void run_cut_forward(const part& x, forward_memory<C>& m, const kernels& run,
                                       const communicator_ref& ranks) {
  m.keys.begin(ranks);
  m.keys.gather_sums(m.own, run, ranks);
  if (x.pieces.any) return run_pieces(x, m, run, ranks);
  const bool by_blocks = m.keys.comes_whole() && !m.staged && x.sums_in_kernels();
  if (!by_blocks) m.keys.finish(ranks);
  if (x.queries().count() == 0 && !by_blocks) return;
  if (x.has_one_average()) {
    m.joint.set(m.keys.total());
    return m.joint.run_forward(run);
  }
  moved_rows moved;
  problem p = x.local;
  place_rows(x, m.at, p, moved);
  if (!m.staged) {
    set_keys(m.at, keys_of(x, m.keys.before), values_of(x, m.keys.before), p);
    if (x.where.has_far(x.rank)) p.afar = m.keys.total().in_kernels(far_kind::rows);
    return by_blocks ? run_blocks(x, m, p, run, ranks) : run.forward(p);
  }
  const staged_operands<C>& staged = *m.staged;
  const far_sum far_part = m.keys.total();
  staged.fill(m.keys.before.k, m.keys.before.v, m.at.stand_in ? &far_part : nullptr);
  staged.fill_queries();
  staged.set_probe([](index_t) { return C(1); });
  staged.set_operands(p);
  p.y = contiguous(m.y.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  if (m.average.size() > 0) p.average = contiguous(m.average.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  if (m.lse.size() > 0) p.lse = contiguous(m.lse.data(), dtype_of<C>, m.at.grid, m.at.queries, p.hk);
  run.forward(p);
  write_results(x, m);
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
