// SPDX-License-Identifier: Apache-2.0
/// @file exchange/returns.hpp  Gradients of keys on their way back, and their sum in rank order.
#pragma once

#include "bias_part.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// What every rank's rows give to the keys of every other rank. Received: for each own key that is near to another rank
/// hk + d numbers of the arithmetic type (of the gradients that are wanted, and the row of a factor), and B (hk + 2 d)
/// doubles from each rank to which own keys are far.
template <class C>
class key_returns {
 public:
  explicit key_returns(const part& x) : x_(&x) {
    const backward_problem& p = x.local;
    wanted_ = p.dk.set || p.dv.set;
    near_any_ = false;
    for (int r = 0; r < x.ranks(); ++r) near_any_ = near_any_ || x.where.near_from(x.rank, r).count() > 0;
    const index_t own = near_any_ ? x.keys().count() * x.inner : 0;
    dk_ = {x.memory, p.dk.set || sums_back() ? p.B * own * p.hk : 0};
    dv_ = {x.memory, p.dv.set || sums_back() ? p.B * own * p.d : 0};
    index_t out = 0, in = 0, all = 0;
    for (int r = 0; r < x.ranks(); ++r) {
      out = max_of(out, bytes_between(x.rank, r));
      in = bytes_between(r, x.rank);
      begins_.push_back(all);
      all += round_up(in, index_t{64});
    }
    outbox_ = {x.memory, out};
    inbox_ = {x.memory, all};
    if (!wanted_) return;
    own_far_ = {x.memory, x.where.has_far(x.rank) ? far_gradient::size(p) : 0};
    joint_ = {x.memory, x.where.sends_any(x.rank) ? far_gradient::size(p) : 0};
  }

  /// Of this rank's rows, for its far keys.
  far_gradient own_far() const { return {own_far_.data(), x_->local}; }
  /// Whether the far keys of this rank need what own_far holds.
  bool gives_sums() const { return wanted_ && x_->where.has_far(x_->rank); }

  /// dk, dv and `factor` are this rank's rows' gradients of its near keys; where one is not wanted it has no data.
  void exchange(const row_block& dk, const row_block& dv, const row_block& factor, const own_keys<C>& keys,
                const kernels& run, const communicator_ref& ranks, const buffer<C>& factor_sum) const {
    const int n = x_->ranks();
    for (int shift = 0; shift < n; ++shift) {
      const int to = (x_->rank + shift) % n, from = (x_->rank + n - shift) % n;
      message out(outbox_.data());
      const positions some = x_->where.near_from(to, x_->rank);
      const index_t first = some.first * x_->inner, count = some.count() * x_->inner;
      // First, as it is of the widest type: what follows is aligned too.
      if (returns_sum(x_->rank, to)) std::memcpy(out.take(sum_bytes()), own_far_.data(), size_of_sum());
      for (const row_block* block : {&dk, &dv, &factor})
        if (block->data != nullptr) block->put(first, count, out.take(block->bytes(count)));
      const std::span<std::byte> in(inbox_.data() + begins_[static_cast<std::size_t>(from)],
                                    static_cast<std::size_t>(bytes_between(from, x_->rank)));
      if (shift > 0) {
        ranks.send_recv(out.all(), to, in, from);
      } else if (!in.empty()) {
        std::memcpy(in.data(), outbox_.data(), in.size());
      }
    }
    sum(keys, run, factor_sum);
  }

 private:
  bool sums_back() const { return wanted_ && x_->where.sends_any(x_->rank); }
  bool returns_sum(int from, int to) const { return wanted_ && x_->where.sends_sums(to, from); }
  index_t sum_bytes() const { return far_gradient::size(x_->local) * static_cast<index_t>(sizeof(double)); }
  std::size_t size_of_sum() const { return static_cast<std::size_t>(sum_bytes()); }
  index_t factor_numbers() const {
    const bias_ref& d = x_->local.dbias;
    return d.kind == bias_kind::factorized && d.v.set ? d.v_heads * x_->local.bias.rank : 0;
  }
  index_t bytes_between(int from, int to) const {
    const backward_problem& p = x_->local;
    const index_t rows = x_->where.near_from(to, from).count() * x_->inner;
    const index_t numbers = (p.dk.set ? p.B * p.hk : 0) + (p.dv.set ? p.B * p.d : 0) + factor_numbers();
    return rows * numbers * static_cast<index_t>(sizeof(C)) + (returns_sum(from, to) ? sum_bytes() : 0);
  }

  /// Adds (outer, count, numbers) of a message to (outer, own, numbers).
  template <class Sum>
  static void add_rows(message& in, index_t outer, index_t own, index_t first, index_t count, index_t numbers,
                       Sum* to) {
    const C* from = in.numbers<C>(outer * count * numbers);
    for (index_t o = 0; o < outer; ++o)
      for (index_t i = 0; i < count * numbers; ++i) to[(o * own + first) * numbers + i] += static_cast<Sum>(*from++);
  }

  void sum(const own_keys<C>& keys, const kernels& run, const buffer<C>& factor_sum) const {
    const part& x = *x_;
    const backward_problem& p = x.local;
    const index_t own = x.keys().count() * x.inner;
    dk_.fill(0);
    dv_.fill(0);
    factor_sum.fill(C(0));
    std::vector<far_gradient> far_part(static_cast<std::size_t>(x.ranks()), far_gradient(nullptr, p));
    for (int r = 0; r < x.ranks(); ++r) {
      const positions some = x.where.near_from(x.rank, r);
      const index_t first = (some.first - x.keys().first) * x.inner, count = some.count() * x.inner;
      message in(inbox_.data() + begins_[static_cast<std::size_t>(r)]);
      if (returns_sum(r, x.rank))
        far_part[static_cast<std::size_t>(r)] = far_gradient(in.numbers<double>(far_gradient::size(p)), p);
      if (p.dk.set) add_rows(in, p.B, own, first, count, p.hk, dk_.data());
      if (p.dv.set) add_rows(in, p.B, own, first, count, p.d, dv_.data());
      if (factor_numbers() > 0)
        add_rows(in, p.dbias.v_heads, x.keys().count(), first, count, p.bias.rank, factor_sum.data());
    }
    if (sums_back()) {
      add_far(far_part, keys, run);
    } else if (!near_any_) {
      clear({x.keys().first, x.keys().last});
    }
    if (!near_any_) return;
    write(p.dk, dk_, p.hk);
    write(p.dv, dv_, p.d);
  }

  /// What far rows give is added to what near ones gave; where there are none it is all, and the caller's at once.
  void add_far(const std::vector<far_gradient>& far_part, const own_keys<C>& keys, const kernels& run) const {
    for (const positions& region : x_->where.regions(x_->rank)) {
      const far_gradient joint(joint_.data(), x_->local);
      joint.clear();
      bool any = false;
      for (int r = 0; r < x_->ranks(); ++r) {
        if (!x_->where.is_far(region, r)) continue;
        joint.add(far_part[static_cast<std::size_t>(r)]);
        any = true;
      }
      if (!any && !near_any_) clear(region);
      if (!any) continue;
      const backward_problem& p = x_->local;
      const index_t own = x_->keys().count() * x_->inner, begin = x_->keys().first * x_->inner;
      keys.find_gradients(region, run, joint, [&](index_t s0, index_t n, const C* dk, const C* dv) {
        for (index_t b = 0; b < p.B; ++b)
          for (index_t s = 0; s < n; ++s, dk += p.hk, dv += p.d) {
            const index_t to = s0 - begin + s;
            if (near_any_) {
              for (index_t c = 0; c < p.hk; ++c) dk_[(b * own + to) * p.hk + c] += static_cast<double>(dk[c]);
              for (index_t c = 0; c < p.d; ++c) dv_[(b * own + to) * p.d + c] += static_cast<double>(dv[c]);
              continue;
            }
            if (p.dk.set) store_row(dk, row_at(p.dk, p.grid, b, to), p.dk.type, p.dk.sc, p.hk);
            if (p.dv.set) store_row(dv, row_at(p.dv, p.grid, b, to), p.dv.type, p.dv.sc, p.d);
          }
      });
    }
  }

  /// Keys that no row sees.
  void clear(const positions& region) const {
    const backward_problem& p = x_->local;
    const C zero(0);
    const index_t begin = x_->keys().first * x_->inner, last = region.last * x_->inner;
    for (index_t b = 0; b < p.B; ++b)
      for (index_t s = region.first * x_->inner; s < last; ++s) {
        const auto clear_row = [&](const field& to, index_t channels) {
          if (!to.set) return;
          std::byte* const row = row_at(to, p.grid, b, s - begin);
          for (index_t c = 0; c < channels; ++c) store_row(&zero, row + c * to.sc * size_of(to.type), to.type, 1, 1);
        };
        clear_row(p.dk, p.hk);
        clear_row(p.dv, p.d);
      }
  }

  void write(const field& to, const buffer<double>& from, index_t channels) const {
    if (!to.set) return;
    const backward_problem& p = x_->local;
    const index_t own = x_->keys().count() * x_->inner;
    for (index_t b = 0; b < p.B; ++b)
      for (index_t t = 0; t < own; ++t)
        store_row(from.data() + (b * own + t) * channels, row_at(to, p.grid, b, t), to.type, to.sc, channels);
  }

  const part* x_;
  bool wanted_ = false, near_any_ = true;
  std::vector<index_t> begins_;
  buffer<std::byte> outbox_, inbox_;
  buffer<double> dk_, dv_, own_far_, joint_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
