// SPDX-License-Identifier: Apache-2.0
/// @file exchange/near_keys.hpp  Moves keys to the ranks whose rows need them, and gradients of keys back to whoever
/// has the keys.
#pragma once

#include "far_sums.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Writes or reads the pieces of a message one behind the other.
class message {
 public:
  explicit message(std::byte* at) : at_(at), begin_(at) {}
  std::byte* take(index_t bytes) {
    std::byte* const piece = at_;
    at_ += bytes;
    return piece;
  }
  /// Numbers whose place in the message is aligned for them.
  template <class T>
  T* numbers(index_t count) {
    return static_cast<T*>(static_cast<void*>(take(count * static_cast<index_t>(sizeof(T)))));
  }
  std::span<std::byte> all() const { return {begin_, static_cast<std::size_t>(at_ - begin_)}; }

 private:
  std::byte *at_, *begin_;
};

/// A contiguous array (outer, cell, numbers), whose first cell is position `first` of the whole.
struct row_block {
  std::byte* data = nullptr;
  index_t outer = 0, cells = 0, row_bytes = 0, first = 0;

  index_t bytes(index_t count) const { return outer * count * row_bytes; }
  std::byte* row(index_t o, index_t position) const { return data + (o * cells + position - first) * row_bytes; }
  void put(index_t from, index_t count, std::byte* to) const { move(from, count, to, true); }
  void get(index_t from, index_t count, const std::byte* source) const {
    move(from, count, const_cast<std::byte*>(source), false);
  }

 private:
  void move(index_t from, index_t count, std::byte* other, bool out) const {
    if (count * row_bytes == 0) return;
    const auto n = static_cast<std::size_t>(count * row_bytes);
    for (index_t o = 0; o < outer; ++o, other += n) {
      if (out) {
        std::memcpy(other, row(o, from), n);
      } else {
        std::memcpy(row(o, from), other, n);
      }
    }
  }
};

/// Keys that lie side by side, with their values: (B, positions, channels) of the data's type.
struct key_block {
  positions range{};  ///< of the outermost axis
  row_block k{}, v{};
  buffer<std::byte> k_bytes{}, v_bytes{};

  void take(const part& x, const positions& of) {
    const problem& p = x.local;
    range = of;
    // Kernels read them where they do not read copies.
    std::pmr::memory_resource* const from = x.works_on_copies() ? x.memory : x.kernel_memory;
    const index_t cells = of.count() * x.inner;
    k_bytes = {from, p.B * cells * p.hk * size_of(p.k.type)};
    v_bytes = {from, p.B * cells * p.d * size_of(p.v.type)};
    k = {k_bytes.data(), p.B, cells, p.hk * size_of(p.k.type), of.first * x.inner};
    v = {v_bytes.data(), p.B, cells, p.d * size_of(p.v.type), of.first * x.inner};
  }
};

/// The near keys of this rank, from wherever they are, and what the far ones of every rank sum to. Where rows go by
/// pieces the own ones stay where they are, and only what the rows at its edges see is here.
class near_keys {
 public:
  explicit near_keys(const part& x) : x_(&x) {
    const problem& p = x.local;
    before.take(x, x.pieces.any ? x.pieces.before : x.near_keys());
    behind.take(x, x.pieces.behind);
    index_t out = 0, in = 0;
    for (int r = 0; r < x.ranks(); ++r) {
      if (r == x.rank) continue;
      out = max_of(out, bytes_between(x.rank, r));
      in = max_of(in, bytes_between(r, x.rank));
    }
    outbox_ = {x.memory, out};
    inbox_ = {x.memory, in};
    total_ = {x.memory, x.where.has_far(x.rank) ? far_sum::size(p) : 0};
    for_one_ = {x.memory, x.where.sends_any(x.rank) ? far_sum::size(p) : 0};
    const auto regions = static_cast<index_t>(x.regions().size());
    sums_ = {x.memory, x.sums_own_keys() ? regions * far_sum::size(p) : 0};
    received_ = {x.memory, x.where.has_far(x.rank) ? x.ranks() * far_sum::size(p) : 0};
  }

  key_block before{};  ///< all of them, or those around the first rows
  key_block behind{};  ///< around the last ones

  /// After gather: the sum over this rank's far keys, where cut::has_far says that there are any.
  far_sum total() const { return {total_.data(), x_->local}; }

  /// After gather: the sum over one of part::regions, where that is far from any rank.
  far_sum sum_of(std::size_t region) const {
    return {sums_.data() + static_cast<index_t>(region) * far_sum::size(x_->local), x_->local};
  }

  /// Received: each near key that another rank has once, hk + d numbers of the data's type, and B (2 hk + d) doubles
  /// from each rank that has far keys.
  template <class C>
  void gather(const own_keys<C>& own, const kernels& run, const communicator_ref& ranks) const {
    const part& x = *x_;
    const auto regions = x.regions();
    for (std::size_t i = 0; x.sums_own_keys() && i < regions.size(); ++i) {
      sum_of(i).clear();
      bool wanted = x.has_far_own_keys();
      for (int r = 0; r < x.ranks(); ++r) wanted = wanted || x.where.is_far(regions[i], r);
      if (wanted) own.fold(regions[i], run, sum_of(i));
    }
    const int n = x.ranks();
    for (int shift = 0; shift < n; ++shift) {
      const int to = (x.rank + shift) % n, from = (x.rank + n - shift) % n;
      if (shift == 0) {
        copy_own_keys();
        if (x.where.sends_sums(to, to)) put_sums(regions, to, sum_memory(received_from(to)));
        continue;
      }
      message out(outbox_.data());
      pack_keys(x.where.near_from(x.rank, to), out);
      if (x.where.sends_sums(x.rank, to)) put_sums(regions, to, out.take(sum_bytes()));
      const std::span<std::byte> in(inbox_.data(), static_cast<std::size_t>(bytes_between(from, x.rank)));
      ranks.send_recv(out.all(), to, in, from);
      unpack(from, message(in.data()));
    }
    if (!x.where.has_far(x.rank)) return;
    // In rank order, whoever came first.
    total().clear();
    for (int r = 0; r < n; ++r)
      if (x.where.sends_sums(r, x.rank)) total().merge(received_from(r));
  }

 private:
  index_t sum_bytes() const { return far_sum::size(x_->local) * static_cast<index_t>(sizeof(double)); }
  index_t bytes_between(int from, int to) const {
    const index_t rows = x_->where.near_from(from, to).count() * x_->inner;
    return before.k.bytes(rows) + before.v.bytes(rows) + (x_->where.sends_sums(from, to) ? sum_bytes() : 0);
  }
  far_sum received_from(int rank) const { return {received_.data() + rank * far_sum::size(x_->local), x_->local}; }

  static std::byte* sum_memory(const far_sum& s) { return static_cast<std::byte*>(static_cast<void*>(s.max)); }

  /// This rank's own near keys, without a message.
  void copy_own_keys() const {
    const problem& p = x_->local;
    for (const key_block* to : {&before, &behind}) {
      const positions some = overlap(to->range, x_->keys());
      const index_t own = x_->keys().first * x_->inner, last = some.last * x_->inner;
      for (index_t b = 0; b < p.B; ++b) {
        for (index_t s = some.first * x_->inner; s < last; ++s) {
          pack_row(row_at(p.k, p.grid, b, s - own), size_of(p.k.type), p.k.sc, p.hk, to->k.row(b, s));
          pack_row(row_at(p.v, p.grid, b, s - own), size_of(p.v.type), p.v.sc, p.d, to->v.row(b, s));
        }
      }
    }
  }

  void pack_keys(const positions& some, message& out) const {
    const problem& p = x_->local;
    const index_t first = (some.first - x_->keys().first) * x_->inner, n = some.count() * x_->inner;
    for (const field* f : {&p.k, &p.v}) {
      const index_t channels = f == &p.k ? p.hk : p.d, size = size_of(f->type);
      std::byte* to = out.take(p.B * n * channels * size);
      for (index_t b = 0; b < p.B; ++b)
        for (index_t t = 0; t < n; ++t, to += channels * size)
          pack_row(row_at(*f, p.grid, b, first + t), size, f->sc, channels, to);
    }
  }

  void put_sums(const std::vector<positions>& regions, int to, std::byte* where) const {
    const far_sum joint(for_one_.data(), x_->local);
    joint.clear();
    for (std::size_t i = 0; i < regions.size(); ++i)
      if (x_->where.is_far(regions[i], to)) joint.merge(sum_of(i));
    std::memcpy(where, for_one_.data(), static_cast<std::size_t>(sum_bytes()));
  }

  void unpack(int from, message in) const {
    const positions some = x_->where.near_from(from, x_->rank);
    const index_t first = some.first * x_->inner, n = some.count() * x_->inner;
    const key_block& to = x_->pieces.any && some.first >= x_->keys().last ? behind : before;
    to.k.get(first, n, in.take(to.k.bytes(n)));
    to.v.get(first, n, in.take(to.v.bytes(n)));
    if (x_->where.sends_sums(from, x_->rank))
      std::memcpy(received_from(from).max, in.take(sum_bytes()), static_cast<std::size_t>(sum_bytes()));
  }

  const part* x_;
  buffer<std::byte> outbox_, inbox_;
  buffer<double> total_, for_one_, sums_, received_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
