// SPDX-License-Identifier: Apache-2.0
/// @file call/piece_problem.hpp  Rows that go by pieces, see row_pieces: each piece as a problem, the sums of the keys
/// that it sees as far ones, and what their gradients follow from.
#pragma once

#include "../exchange/returns.hpp"
#include "near_problem.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// All rows see as far, besides the rank's far keys, those of others that are near to the edges: `before` and `behind`
/// the own ones. The first rows see so those behind, and the own keys that do not lie around them; the last rows the
/// other way round.
template <class C>
class piece_sums {
 public:
  explicit piece_sums(const part& x) : x_(&x) {
    if (!x.pieces.any) return;
    const problem& p = x.local;
    sums_ = {x.memory, joins() ? row_pieces::most * far_sum::size(p) : 0};
    const index_t edges = x.pieces.first + x.pieces.last;
    if (p.gate_fn != gate::none && p.q.set) queries_ = {x.memory, p.B * edges * p.d * size_of(p.q.type)};
  }

  /// Room for what a backward call gives to keys.
  void take_gradients() {
    const backward_problem& p = x_->local;
    gradients_ = {x_->memory, joins() ? row_pieces::most * far_gradient::size(p) : 0};
    joint_ = {x_->memory, joins() ? far_gradient::size(p) : 0};
    for (std::size_t i = 0; i < 2; ++i) {
      const index_t n = p.B * range_of(i).count();
      dk_[i] = {x_->memory, p.dk.set ? n * p.hk : 0};
      dv_[i] = {x_->memory, p.dv.set ? n * p.d : 0};
    }
  }

  /// Whether the sums for all rows follow from those of whole parts, so that they wait for no keys of others.
  bool all_wait_for_none() const { return !joins() || x_->where.gathers_sums(); }

  /// The sum for all rows, to which every key of others is far.
  void find_sum_of_all(const near_keys& keys, const own_keys<C>& own, const kernels& run) const {
    if (!joins()) return;
    const part& x = *x_;
    const far_sum all = sums_of(piece::all);
    all.clear();
    if (x.where.gathers_sums()) {
      for (int r = 0; r < x.ranks(); ++r)
        if (x.where.gives_whole(r) && (x.where.causal() ? r < x.rank : r != x.rank)) all.merge(keys.whole_of(r));
      return;
    }
    if (x.where.has_far(x.rank)) all.merge(keys.total());
    if (others_before().count() > 0) fold(others_before(), keys.before, own, run, all);
    if (others_behind().count() > 0) fold(others_behind(), keys.behind, own, run, all);
  }

  /// Those for the rows at the edges.
  void find_sums_of_edges(const near_keys& keys, const own_keys<C>& own, const kernels& run) const {
    if (!joins()) return;
    const part& x = *x_;
    const auto regions = x.regions();
    const far_sum first = sums_of(piece::first), last = sums_of(piece::last);
    for (const far_sum& to : {first, last}) {
      to.clear();
      if (x.where.has_far(x.rank)) to.merge(keys.total());
    }
    const positions before = others_before(), behind = others_behind();
    if (before.count() > 0 && x.pieces.last > 0) fold(before, keys.before, own, run, last);
    for (std::size_t i = 0; x.has_far_own_keys() && i < regions.size(); ++i) {
      if (x.pieces.first > 0 && regions[i].first >= x.pieces.before.last) first.merge(keys.sum_of(i));
      if (x.pieces.last > 0 && regions[i].last <= x.pieces.behind.first) last.merge(keys.sum_of(i));
    }
    if (behind.count() > 0 && x.pieces.first > 0) fold(behind, keys.behind, own, run, first);
  }

  void make_room(piece i) const {
    if (joins()) sums_of(i).make_room();
  }

  /// Makes p the call of a piece; false where it has no rows.
  template <class Problem>
  bool place(piece i, const near_keys& keys, Problem& p, moved_rows& moved) const {
    const part& x = *x_;
    const row_pieces& pieces = x.pieces;
    const index_t own = x.keys().first, n = x.queries().count();
    if (i == piece::all) {
      const placement at(own, x.keys().count(), 0, n);
      const field k = p.k, v = p.v;
      place_rows(x, at, p, moved);
      set_keys(at, k, v, p);
      if (pieces.has_edges()) {
        p.asked_first = pieces.first;
        p.asked_count = n - pieces.first - pieces.last;
        p.query_lengths.less += pieces.first;
      }
    } else {
      const bool begins = i == piece::first;
      const index_t count = begins ? pieces.first : pieces.last, skipped = begins ? 0 : n - count;
      if (count == 0) return false;
      const key_block& from = begins ? keys.before : keys.behind;
      const placement at(from.range.first, from.range.count(), own + skipped - from.range.first, count);
      take_rows(p, skipped);
      place_rows(x, at, p, moved);
      set_keys(at, keys_of(x, from), values_of(x, from), p);
    }
    if (joins()) p.afar = sums_of(i).in_kernels(far_kind::rows);
    return true;
  }

  /// The rows' q at the edges, which y of all rows may overwrite.
  void keep_queries() const {
    const problem& p = x_->local;
    if (queries_.size() == 0) return;
    for (const piece i : {piece::first, piece::last}) {
      const field to = kept_queries(i);
      const index_t size = size_of(p.q.type), skipped = i == piece::first ? 0 : p.Tq - x_->pieces.last;
      for (index_t b = 0; b < p.B; ++b)
        for (index_t t = 0; t < rows_of(i); ++t)
          pack_row(row_at(p.q, p.grid, b, skipped + t), size, p.q.sc, p.d, row_at(to, p.grid, b, t));
    }
  }
  void place_queries(piece i, problem& p) const {
    if (i != piece::all && queries_.size() > 0) p.q = kept_queries(i);
  }

  /// Where the kernels' gradients of keys go. `dk` and `dv` are those of own keys.
  void place_gradients(piece i, const field& dk, const field& dv, backward_problem& p) const {
    if (i == piece::all) {
      p.dk = dk;
      p.dv = dv;
    } else {
      const std::size_t at = i == piece::first ? 0 : 1;
      if (p.dk.set) p.dk = tensor(dk_[at], at, p.hk);
      if (p.dv.set) p.dv = tensor(dv_[at], at, p.d);
    }
    if (gradients_.size() == 0) return;
    const far_gradient to = gradients_of(i);
    to.clear();
    const far_sum sums = sums_of(i);
    std::memcpy(to.max, sums.max, static_cast<std::size_t>(to.keys) * sizeof(double));
    p.afar.slope = to.slope;
    p.afar.offset = to.offset;
  }

  /// Adds what rows give that see keys of others as far ones, though those are near to an edge.
  void spread_over_others(const near_keys& keys, const own_keys<C>& own, const kernels& run) const {
    if (gradients_.size() == 0) return;
    const auto spread = [&](const positions& some, const key_block& from, std::size_t at, piece edge) {
      if (some.count() == 0) return;
      const far_gradient joint(joint_.data(), x_->local);
      joint.clear();
      joint.add(gradients_of(piece::all));
      if (rows_of(edge) > 0) joint.add(gradients_of(edge));
      const backward_problem& p = x_->local;
      own.spread(some, from.range.first, keys_of(*x_, from), values_of(*x_, from), run, joint,
                 sums_of(piece::all).average, true, p.dk.set ? tensor(dk_[at], at, p.hk) : field{},
                 p.dv.set ? tensor(dv_[at], at, p.d) : field{});
    };
    spread(others_before(), keys.before, 0, piece::last);
    spread(others_behind(), keys.behind, 1, piece::first);
  }

  /// What all pieces give to the rank's far keys.
  void join_gradients(const far_gradient& to) const {
    to.clear();
    for (const piece i : {piece::all, piece::first, piece::last})
      if (i == piece::all || rows_of(i) > 0) to.add(gradients_of(i));
  }

  /// What the rows at the edges give to the keys around them, and to the own keys that are far from them.
  std::array<near_gradients, 2> near_gradients_of() const {
    std::array<near_gradients, 2> all{};
    const problem& p = x_->local;
    for (std::size_t i = 0; i < 2; ++i) {
      const positions range = range_of(i);
      const auto block = [&](const buffer<C>& rows, index_t channels) {
        if (rows.size() == 0) return row_block{};
        return row_block{reinterpret_cast<std::byte*>(rows.data()), p.B, range.count(),
                         channels * static_cast<index_t>(sizeof(C)), range.first};
      };
      all[i] = {range, block(dk_[i], p.hk), block(dv_[i], p.d), {}};
    }
    return all;
  }
  std::array<far_gradient, 2> rests() const { return {gradients_of(piece::first), gradients_of(piece::last)}; }

 private:
  /// Whether rows see keys as far ones.
  bool joins() const { return x_->where.has_far(x_->rank) || (x_->pieces.has_edges() && x_->where.counts_far()); }
  positions range_of(std::size_t i) const { return i == 0 ? x_->pieces.before : x_->pieces.behind; }
  index_t rows_of(piece i) const { return i == piece::first ? x_->pieces.first : x_->pieces.last; }
  positions others_before() const {
    return {x_->pieces.before.first, min_of(x_->pieces.before.last, x_->keys().first)};
  }
  positions others_behind() const { return {max_of(x_->pieces.behind.first, x_->keys().last), x_->pieces.behind.last}; }

  far_sum sums_of(piece i) const {
    return {behind(sums_.data(), static_cast<index_t>(i) * far_sum::size(x_->local)), x_->local};
  }
  far_gradient gradients_of(piece i) const {
    return {behind(gradients_.data(), static_cast<index_t>(i) * far_gradient::size(x_->local)), x_->local};
  }
  field tensor(const buffer<C>& rows, std::size_t i, index_t channels) const {
    const index_t n = range_of(i).count();
    return contiguous(rows.data(), dtype_of<C>, {1, 1, n}, n, channels);
  }
  field kept_queries(piece i) const {
    const problem& p = x_->local;
    const index_t n = rows_of(i), size = size_of(p.q.type);
    const index_t at = i == piece::first ? 0 : p.B * x_->pieces.first * p.d * size;
    return contiguous(queries_.data() + at, p.q.type, {1, 1, n}, n, p.d);
  }

  void fold(const positions& some, const key_block& from, const own_keys<C>& own, const kernels& run,
            const far_sum& to) const {
    own.fold(some, from.range.first, keys_of(*x_, from), values_of(*x_, from), run, to);
  }

  /// Rows from the rank's row `n` on.
  static void take_rows(problem& p, index_t n) {
    for (field* f : {&p.q, &p.y, &p.lse, &p.average}) sequences::take_rows(*f, n);
    if (p.bias.kind == bias_kind::banded) sequences::take_rows(p.bias.w, n);
    p.query_lengths.less += n;
  }
  static void take_rows(backward_problem& p, index_t n) {
    take_rows(static_cast<problem&>(p), n);
    for (field* f : {&p.dy, &p.dq}) sequences::take_rows(*f, n);
    if (p.dbias.kind == bias_kind::banded) sequences::take_rows(p.dbias.w, n);
  }

  const part* x_;
  buffer<double> sums_{}, gradients_{}, joint_{};
  buffer<std::byte> queries_{};
  std::array<buffer<C>, 2> dk_{}, dv_{};
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
