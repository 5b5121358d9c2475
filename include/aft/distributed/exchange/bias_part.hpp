// SPDX-License-Identifier: Apache-2.0
/// @file exchange/bias_part.hpp  The bias of a rank's rows for keys that begin elsewhere, and its gradient where all
/// ranks have the whole.
#pragma once

#include "near_keys.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// A generated bias, or its gradient, that is asked for keys counted from `shift` on.
struct moved_rows {
  generated_rows given{};
  index_t shift = 0;
  generated_rows rows{};

  void set(const generated_rows& from, index_t by) {
    given = from;
    shift = by;
    rows = from;
    rows.f = this;
    if (from.generate != nullptr) rows.generate = &generate;
    if (from.take != nullptr) rows.take = &take;
  }

 private:
  static void generate(const void* f, index_t b, index_t h, index_t t, index_t s0, void* row, index_t n) noexcept {
    const auto& m = *static_cast<const moved_rows*>(f);
    m.given.generate(m.given.f, b, h, t, s0 + m.shift, row, n);
  }
  static void take(const void* f, index_t of, index_t b, index_t h, index_t t, index_t s0, const void* dw,
                   index_t n) noexcept {
    const auto& m = *static_cast<const moved_rows*>(f);
    m.given.take(m.given.f, of, b, h, t, s0 + m.shift, dw, n);
  }
};

/// Lets rows and columns of a bias begin at query q.first and at key `base`, where its tensors begin at those of the
/// rank's own part. Key base may be one before or behind the keys that have a bias: nothing of it is read.
inline void place_bias(const part& x, bias_ref& b, index_t base, moved_rows& moved) {
  const index_t by = base - x.keys().first;
  const auto move = [](matrix& m, index_t steps) {
    if (m.set && m.data != nullptr) m.data += steps * size_of(m.type);
  };
  if (b.kind == bias_kind::dense) move(b.w, by * b.w.sc);
  if (b.kind == bias_kind::factorized) move(b.v, by * b.v.sr);
  if (b.kind != bias_kind::generated) return;
  moved.set(*b.rows, base);
  b.rows = &moved.rows;
  b.rows_first = x.queries().first;
}

/// The gradient of a bias as one rank's kernels write it, and its way to the caller.
template <class C>
class bias_gradient_part {
 public:
  /// `cells` keys are the kernels', the first of them at position `base`.
  bias_gradient_part(const part& x, index_t base, index_t cells) : x_(&x), base_(base), cells_(cells) {
    const backward_problem& p = x.local;
    const bias_ref& d = p.dbias;
    if (d.kind == bias_kind::dense && d.w.set) {
      zero_ = {x.kernel_memory, 1};
      zero_.fill(0);
    }
    if (d.kind == bias_kind::filter) {
      taps_ = d.heads * p.taps[0] * p.taps[1] * p.taps[2];
      filter_ = {x.kernel_memory, taps_ * row_pieces::most};
      filters_ = {x.memory, taps_ * x.ranks()};
      filter_.fill(C(0));
    }
    if (d.kind != bias_kind::factorized) return;
    if (d.u.set) {
      u_ = {x.kernel_memory, d.u_heads * x.queries().count() * p.bias.rank};
      others_ = {x.memory, d.u_heads * longest(false) * p.bias.rank};
    }
    if (!d.v.set) return;
    v_ = {x.kernel_memory, d.v_heads * cells * p.bias.rank};
    sum_ = {x.memory, d.v_heads * x.keys().count() * p.bias.rank};
    const index_t most = d.v_heads * longest(true) * p.bias.rank;
    if (most > others_.size()) others_ = {x.memory, most};
  }

  /// The gradient that the kernels are asked for.
  void place(bias_ref& d) {
    place_bias(*x_, d, base_, moved_);
    if (d.kind == bias_kind::filter) {
      const auto& taps = x_->local.taps;
      d.r = reinterpret_cast<std::byte*>(filter_.data());
      d.r_type = dtype_of<C>;
      d.r_sh = taps[0] * taps[1] * taps[2];
      d.r_sj = {taps[1] * taps[2], taps[2], 1};
    }
    if (d.kind != bias_kind::factorized) return;
    const index_t n = x_->local.bias.rank;
    if (d.u.set) d.u = rows_of(u_, x_->queries().count(), n);
    if (d.v.set) d.v = rows_of(v_, cells_, n);
  }

  /// The same of a filter for rows that go by pieces, of which each has room for a gradient of its own.
  void place_piece(bias_ref& d, index_t i) {
    place(d);
    d.r += i * taps_ * static_cast<index_t>(sizeof(C));
  }
  void join_pieces() const {
    for (index_t i = taps_; i < filter_.size(); ++i) filter_[i % taps_] += filter_[i];
  }

  /// Rows of the keys' factor, which go back with the gradients of keys; without any where there is no such factor.
  row_block key_rows() const {
    const bias_ref& d = x_->local.dbias;
    if (d.kind != bias_kind::factorized || !d.v.set) return {};
    return {reinterpret_cast<std::byte*>(v_.data()), d.v_heads, cells_, row_bytes(), base_};
  }
  /// (heads, own keys, n): the sum of all ranks' rows, which whoever has the keys makes.
  const buffer<C>& key_sum() const { return sum_; }

  /// Columns of a dense bias that the kernels did not write: their gradient is 0.
  void clear_far_columns(const kernels& run) const {
    const backward_problem& p = x_->local;
    const bias_ref& d = p.dbias;
    if (zero_.size() == 0 || d.w.data == nullptr) return;
    const matrix& w = d.w;
    const index_t all = x_->where.all_keys(), last = min_of(base_ + cells_, all);
    for (const positions& columns : {positions{0, max_of(base_, index_t{0})}, positions{last, all}}) {
      if (columns.count() == 0) continue;
      const index_t size = size_of(w.type);
      run.clear({w.data + (columns.first - x_->keys().first) * w.sc * size,
                 size,
                 {1, d.batch, d.heads, p.Tq, columns.count()},
                 {0, w.sb, w.sh, w.sr, w.sc}},
                reinterpret_cast<const std::byte*>(zero_.data()));
    }
  }

  /// Sums in rank order, of what all ranks have whole, into the caller's tensors, with the same bits on all ranks.
  /// Received: a filter from every rank; of factors every other rank's rows once, and once more those of the keys on
  /// their way to whoever has them.
  void sum(const communicator_ref& ranks) const {
    const bias_ref& d = x_->local.dbias;
    if (d.kind == bias_kind::filter) return sum_filters(ranks);
    if (d.kind != bias_kind::factorized) return;
    if (d.u.set) share(ranks, u_, d.u, d.u_heads, false);
    if (d.v.set) share(ranks, sum_, d.v, d.v_heads, true);
  }

 private:
  index_t row_bytes() const { return x_->local.bias.rank * static_cast<index_t>(sizeof(C)); }
  const positions& part_of(int rank, bool keys) const { return keys ? x_->where.keys(rank) : x_->where.queries(rank); }
  index_t longest(bool keys) const {
    index_t most = 0;
    for (int r = 0; r < x_->ranks(); ++r) most = max_of(most, part_of(r, keys).count());
    return most;
  }
  static matrix rows_of(const buffer<C>& b, index_t rows, index_t n) {
    matrix m;
    m.data = reinterpret_cast<std::byte*>(b.data());
    m.type = dtype_of<C>;
    m.set = true;
    m.sh = rows * n;
    m.sr = n;
    m.sc = 1;
    return m;
  }

  void sum_filters(const communicator_ref& ranks) const {
    const backward_problem& p = x_->local;
    const bias_ref& d = p.dbias;
    ranks.all_gather(filter_.bytes_of(taps_), filters_.bytes_of(filters_.size()));
    index_t at = 0;
    for (index_t h = 0; h < d.heads; ++h)
      for (index_t i = 0; i < p.taps[0]; ++i)
        for (index_t j = 0; j < p.taps[1]; ++j)
          for (index_t l = 0; l < p.taps[2]; ++l, ++at) {
            double sum = 0;
            for (index_t r = 0; r < x_->ranks(); ++r) sum += static_cast<double>(filters_[r * taps_ + at]);
            const index_t to = h * d.r_sh + i * d.r_sj[0] + j * d.r_sj[1] + l * d.r_sj[2];
            store_row(&sum, d.r + to * size_of(d.r_type), d.r_type, 1, 1);
          }
  }

  /// Every rank's rows to all ranks.
  void share(const communicator_ref& ranks, const buffer<C>& own, const matrix& to, index_t heads, bool keys) const {
    const index_t n = x_->local.bias.rank;
    for (int shift = 0; shift < x_->ranks(); ++shift) {
      const int next = (x_->rank + shift) % x_->ranks(), from = (x_->rank + x_->ranks() - shift) % x_->ranks();
      const positions& theirs = part_of(from, keys);
      const index_t count = heads * theirs.count() * n;
      if (shift > 0) ranks.send_recv(own.bytes_of(own.size()), next, others_.bytes_of(count), from);
      const C* at = shift > 0 ? others_.data() : own.data();
      for (index_t h = 0; h < heads; ++h)
        for (index_t t = theirs.first; t < theirs.last; ++t, at += n) {
          const index_t row = t - part_of(x_->rank, keys).first;
          store_row(at, to.data + (h * to.sh + row * to.sr) * size_of(to.type), to.type, to.sc, n);
        }
    }
  }

  const part* x_;
  index_t base_, cells_, taps_ = 0;
  moved_rows moved_{};
  buffer<C> filter_, filters_, u_, v_, sum_, others_;
  buffer<double> zero_;  // of every floating type
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
