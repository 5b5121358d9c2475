// SPDX-License-Identifier: Apache-2.0
/// @file exchange/returns.hpp  Gradients of keys on their way back, and their sum in rank order.
#pragma once

#include "bias_part.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// What this rank's rows give to near keys, (B, positions, channels) of the arithmetic type, and to the rows of a
/// factor; what is not wanted has no data.
struct near_gradients {
  positions range{};
  row_block dk{}, dv{}, factor{};
};

/// What every rank's rows give to the keys of every other rank. Received: for each own key that is near to another rank
/// hk + d numbers of the arithmetic type (of the gradients that are wanted, and the row of a factor), and B (hk + 2 d)
/// doubles from each rank, where those go to all, or from each to which own keys are far.
template <class C>
class key_returns {
 public:
  explicit key_returns(const part& x) : x_(&x) {
    const backward_problem& p = x.local;
    wanted_ = p.dk.set || p.dv.set;
    near_any_ = false;
    for (int r = 0; r < x.ranks(); ++r) near_any_ = near_any_ || x.where.near_from(x.rank, r).count() > 0;
    const index_t own = x.keys().count() * x.inner;
    dk_ = {x.memory, is_staged(p.dk) ? p.B * own * p.hk : 0};
    dv_ = {x.memory, is_staged(p.dv) ? p.B * own * p.d : 0};
    index_t out = 0, in = 0, all = 0;
    for (int r = 0; r < x.ranks(); ++r) {
      out = max_of(out, r == x.rank ? 0 : bytes_between(x.rank, r));
      in = r == x.rank ? 0 : bytes_between(r, x.rank);
      begins_.push_back(all);
      all += round_up(in, index_t{64});
    }
    messages_ = {x.memory, out};
    inbox_ = {x.memory, all};
    if (!wanted_) return;
    const bool gathers = x.where.gathers_sums();
    own_far_ = {x.memory, gathers || x.where.has_far(x.rank) ? far_gradient::size(p) : 0};
    received_ = {x.memory, gathers || x.where.sends_any(x.rank) ? x.ranks() * far_gradient::size(p) : 0};
    joint_ = {x.memory, x.sums_own_keys() ? far_gradient::size(p) : 0};
  }

  /// Where the gradients of own keys are summed, and kernels may write those of rows that go by pieces.
  field dk() const { return place(x_->local.dk, dk_, x_->local.hk); }
  field dv() const { return place(x_->local.dv, dv_, x_->local.d); }

  /// Of this rank's rows, for its far keys.
  far_gradient own_far() const { return {own_far_.data(), x_->local}; }
  /// Whether gradients of keys are asked for.
  bool wanted() const { return wanted_; }
  /// Whether the far keys of this rank need what own_far holds.
  bool gives_sums() const { return wanted_ && x_->where.has_far(x_->rank); }

  /// `sums` are those of the call's forward exchange. Of rows that go by pieces `own` is what those at the edges give,
  /// before the own keys and behind them, and of `rests` each is what follows for the own keys that they see as far.
  void exchange(const std::array<near_gradients, 2>& own, const near_keys& sums,
                const std::array<far_gradient, 2>& rests, const own_keys<C>& keys, const kernels& run,
                const communicator_ref& ranks, const buffer<C>& factor_sum) {
    const ends_of ends{this, &own};
    messages_.begin(ranks, ends);
    if (wanted_) gather_sums(ranks);
    write_far(sums, rests, keys, run);
    messages_.finish(ranks, ends);
    add_all(own, factor_sum);
    write(x_->local.dk, dk_, x_->local.hk);
    write(x_->local.dv, dv_, x_->local.d);
  }

 private:
  /// What rank_messages asks for. All that comes stays, as it is added in rank order.
  struct ends_of {
    void pack(int to, message& out) const {
      const part& x = *of->x_;
      const positions some = x.where.near_from(to, x.rank);
      const index_t first = some.first * x.inner, count = some.count() * x.inner;
      const near_gradients& from = (*own)[some.first >= (*own)[0].range.last ? 1 : 0];
      for (const row_block* block : {&from.dk, &from.dv, &from.factor})
        if (block->data != nullptr) block->put(first, count, out.take(block->bytes(count)));
    }
    std::span<std::byte> inbox(int from, int) const {
      return {of->inbox_.data() + of->begins_[static_cast<std::size_t>(from)],
              static_cast<std::size_t>(of->bytes_between(from, of->x_->rank))};
    }
    void take(int, message) const {}
    const key_returns* of;
    const std::array<near_gradients, 2>* own;
  };

  /// As near_keys::gather_sums, the other way.
  void gather_sums(const communicator_ref& ranks) const {
    const part& x = *x_;
    const cut& where = x.where;
    if (where.gathers_sums()) {
      // The same for whoever has such keys, also beside near ones.
      if (!gives_sums()) own_far().clear();
      return ranks.all_gather(bytes_of(own_far()), received_.bytes_of(received_.size()));
    }
    const int n = x.ranks();
    for (int shift = 1; shift < n; ++shift) {
      const int to = (x.rank + shift) % n, from = (x.rank + n - shift) % n;
      // Without a record of all everything that is far is a rest.
      const bool sends = where.sends_rest(to, x.rank), receives = where.sends_rest(x.rank, from);
      ranks.send_recv(sends ? bytes_of(own_far()) : std::span<std::byte>{}, to,
                      receives ? bytes_of(received_from(from)) : std::span<std::byte>{}, from);
    }
  }

  bool sums_back() const { return wanted_ && x_->where.sends_any(x_->rank); }
  far_gradient received_from(int rank) const {
    return {received_.data() + rank * far_gradient::size(x_->local), x_->local};
  }
  std::span<std::byte> bytes_of(const far_gradient& g) const {
    return {static_cast<std::byte*>(static_cast<void*>(g.max)),
            static_cast<std::size_t>(far_gradient::size(x_->local)) * sizeof(double)};
  }
  index_t factor_numbers() const {
    const bias_ref& d = x_->local.dbias;
    return d.kind == bias_kind::factorized && d.v.set ? d.v_heads * x_->local.bias.rank : 0;
  }
  index_t bytes_between(int from, int to) const {
    const backward_problem& p = x_->local;
    const index_t rows = x_->where.near_from(to, from).count() * x_->inner;
    const index_t numbers = (p.dk.set ? p.B * p.hk : 0) + (p.dv.set ? p.B * p.d : 0) + factor_numbers();
    return rows * numbers * static_cast<index_t>(sizeof(C));
  }

  /// Whether gradients are summed apart, to be rounded once.
  bool is_staged(const field& f) const { return f.set && near_any_ && (f.type != dtype_of<C> || f.sc != 1); }
  /// Where the gradients of own keys are summed.
  field place(const field& f, const buffer<C>& staged, index_t channels) const {
    return is_staged(f)
               ? contiguous(staged.data(), dtype_of<C>, x_->local.grid, x_->keys().count() * x_->inner, channels)
               : f;
  }

  /// Adds rows (outer, count, numbers), which are of the arithmetic type, to others: from(o, i) and to(o, i) say where
  /// they lie.
  template <class From, class To>
  static void add_rows(index_t outer, index_t count, index_t numbers, const From& from, const To& to) {
    for (index_t o = 0; o < outer; ++o) {
      for (index_t i = 0; i < count; ++i) {
        const C* const x = from(o, i);
        C* const sum = to(o, i);
        for (index_t c = 0; c < numbers; ++c) sum[c] += x[c];
      }
    }
  }

  /// Adds what every rank's rows give to near keys, in rank order.
  void add_all(const std::array<near_gradients, 2>& own, const buffer<C>& factor_sum) const {
    const part& x = *x_;
    const backward_problem& p = x.local;
    factor_sum.fill(C(0));
    const auto add_own = [&](const near_gradients& mine) {
      const positions some = overlap(mine.range, x.keys());
      const auto rows_of = [&](const row_block& block) {
        return [&](index_t o, index_t i) { return reinterpret_cast<const C*>(block.row(o, some.first * x.inner + i)); };
      };
      add(some, rows_of(mine.dk), rows_of(mine.dv), rows_of(mine.factor), factor_sum);
    };
    for (int r = 0; r < x.ranks(); ++r) {
      if (r == x.rank) {
        for (const near_gradients& mine : own) add_own(mine);
        continue;
      }
      const positions some = x.where.near_from(x.rank, r);
      const index_t count = some.count() * x.inner;
      message in(inbox_.data() + begins_[static_cast<std::size_t>(r)]);
      const auto rows_of = [&](bool wanted, index_t outer, index_t numbers) {
        const C* const from = wanted ? in.template numbers<C>(outer * count * numbers) : nullptr;
        return [=](index_t o, index_t i) { return from + (o * count + i) * numbers; };
      };
      // In the order of the message.
      const auto of_dk = rows_of(p.dk.set, p.B, p.hk), of_dv = rows_of(p.dv.set, p.B, p.d);
      add(some, of_dk, of_dv, rows_of(factor_numbers() > 0, p.dbias.v_heads, p.bias.rank), factor_sum);
    }
  }

  /// Adds to own keys `some` what is wanted of three sources of rows.
  template <class Keys, class Values, class Factor>
  void add(const positions& some, const Keys& of_dk, const Values& of_dv, const Factor& of_factor,
           const buffer<C>& factor_sum) const {
    const part& x = *x_;
    const backward_problem& p = x.local;
    const index_t first = (some.first - x.keys().first) * x.inner, count = some.count() * x.inner;
    const auto rows_of = [&](const field& f) {
      return [&, f](index_t b, index_t i) { return reinterpret_cast<C*>(row_at(f, p.grid, b, first + i)); };
    };
    if (p.dk.set) add_rows(p.B, count, p.hk, of_dk, rows_of(dk()));
    if (p.dv.set) add_rows(p.B, count, p.d, of_dv, rows_of(dv()));
    if (factor_numbers() == 0) return;
    add_rows(p.dbias.v_heads, count, p.bias.rank, of_factor, [&](index_t h, index_t i) {
      return factor_sum.data() + (h * x.keys().count() + first + i) * p.bias.rank;
    });
  }

  /// What far rows give, or 0; of rows that go by pieces, added to what they gave.
  void write_far(const near_keys& sums, const std::array<far_gradient, 2>& rests, const own_keys<C>& keys,
                 const kernels& run) const {
    const field dk = this->dk(), dv = this->dv();
    const auto regions = x_->regions();
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const positions& region = regions[i];
      const far_gradient joint(joint_.data(), x_->local);
      bool any = false;
      if (sums_back()) joint.clear();
      for (int r = 0; r < x_->ranks() && sums_back(); ++r) {
        if (!x_->where.is_far(region, r)) continue;
        joint.add(r == x_->rank ? own_far() : received_from(r));
        any = true;
      }
      const row_pieces& pieces = x_->pieces;
      if (x_->has_far_own_keys() && wanted_) {
        if (!any) joint.clear();
        const bool of_first = pieces.first > 0 && region.first >= pieces.before.last;
        const bool of_last = pieces.last > 0 && region.last <= pieces.behind.first;
        if (of_first) joint.add(rests[0]);
        if (of_last) joint.add(rests[1]);
        any = any || of_first || of_last;
      }
      if (!any) {
        if (!pieces.any) clear(region, dk, dv);
      } else if (x_->sums_in_kernels()) {
        const backward_problem& p = x_->local;
        keys.spread(region, x_->keys().first, p.k, p.v, run, joint, sums.sum_of(i).average, pieces.any, dk, dv);
      } else {
        const backward_problem& p = x_->local;
        const index_t begin = x_->keys().first * x_->inner;
        keys.find_gradients(region, run, joint, [&](index_t s0, index_t n, const C* dk_rows, const C* dv_rows) {
          for (index_t b = 0; b < p.B; ++b) {
            for (index_t s = s0 - begin; s < s0 - begin + n; ++s, dk_rows += p.hk, dv_rows += p.d) {
              if (dk.set) store_row(dk_rows, row_at(dk, p.grid, b, s), dk.type, dk.sc, p.hk);
              if (dv.set) store_row(dv_rows, row_at(dv, p.grid, b, s), dv.type, dv.sc, p.d);
            }
          }
        });
      }
    }
  }

  void clear(const positions& region, const field& dk, const field& dv) const {
    const backward_problem& p = x_->local;
    const C zero(0);
    const index_t begin = x_->keys().first * x_->inner, last = region.last * x_->inner;
    for (index_t b = 0; b < p.B; ++b)
      for (index_t s = region.first * x_->inner; s < last; ++s) {
        const auto clear_row = [&](const field& to, index_t channels) {
          if (!to.set) return;
          std::byte* const row = row_at(to, p.grid, b, s - begin);
          // All bits of a zero are 0, whatever its type is.
          if (to.sc == 1)
            return static_cast<void>(std::memset(row, 0, static_cast<std::size_t>(channels * size_of(to.type))));
          for (index_t c = 0; c < channels; ++c) store_row(&zero, row + c * to.sc * size_of(to.type), to.type, 1, 1);
        };
        clear_row(dk, p.hk);
        clear_row(dv, p.d);
      }
  }

  void write(const field& to, const buffer<C>& from, index_t channels) const {
    if (!is_staged(to)) return;
    const backward_problem& p = x_->local;
    const index_t own = x_->keys().count() * x_->inner;
    for (index_t b = 0; b < p.B; ++b)
      for (index_t t = 0; t < own; ++t)
        store_row(from.data() + (b * own + t) * channels, row_at(to, p.grid, b, t), to.type, to.sc, channels);
  }

  const part* x_;
  bool wanted_ = false, near_any_ = true;
  std::vector<index_t> begins_;
  rank_messages messages_{};
  buffer<std::byte> inbox_;
  buffer<C> dk_, dv_;
  buffer<double> own_far_, received_, joint_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
