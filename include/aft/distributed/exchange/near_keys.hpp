// SPDX-License-Identifier: Apache-2.0
/// @file exchange/near_keys.hpp  Moves keys to the ranks whose rows need them, and gradients of keys back to whoever
/// has the keys.
#pragma once

#include "far_sums.hpp"
#include "messages.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

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
/// pieces the own ones stay where they are, and only what the rows at its edges see is here. Where rows see every key
/// one by one, these come some batch elements after the other, so that the first ones can be worked on while others are
/// on their way.
class near_keys {
 public:
  explicit near_keys(const part& x) : x_(&x) {
    const problem& p = x.local;
    // A rank without rows sends its keys from here, too.
    const bool sends_alone = comes_whole() && x.queries().count() == 0;
    before.take(x, x.pieces.any ? x.pieces.before : sends_alone ? x.keys() : x.near_keys());
    behind.take(x, x.pieces.behind);
    index_t out = 0, in = 0;
    for (int r = 0; r < x.ranks(); ++r) {
      if (r == x.rank) continue;
      out = max_of(out, bytes_between(x.rank, r));
      in = max_of(in, bytes_between(r, x.rank));
    }
    if (!comes_whole()) {
      messages_ = {x.memory, out};
      for (buffer<std::byte>& b : inbox_) b = {x.memory, in};
    }
    const bool gathers = x.where.gathers_sums();
    total_ = {x.memory, x.where.has_far(x.rank) ? far_sum::size(p) : 0};
    for_others_ = {x.memory, gathers || x.where.sends_any(x.rank) ? far_sum::size(p) : 0};
    index_t rests = 0;
    for (int r = 0; r < x.ranks(); ++r) {
      rest_at_.push_back(x.where.sends_rest(r, x.rank) ? rests : -1);
      rests += rest_at_.back() >= 0;
    }
    rests_ = {x.memory, rests * far_sum::size(p)};
    const auto regions = static_cast<index_t>(x.regions().size());
    sums_ = {x.memory, x.sums_own_keys() ? regions * far_sum::size(p) : 0};
    wholes_ = {x.memory, gathers ? x.ranks() * far_sum::size(p) : 0};
  }

  key_block before{};  ///< all of them, or those around the first rows
  key_block behind{};  ///< around the last ones

  /// After gather_sums: the sum over this rank's far keys, where cut::has_far says that there are any.
  far_sum total() const { return {total_.data(), x_->local}; }

  /// After gather_sums: the sum over one of part::regions, where that is far from any rank.
  far_sum sum_of(std::size_t region) const {
    return {sums_.data() + static_cast<index_t>(region) * far_sum::size(x_->local), x_->local};
  }

  /// Lets near keys go to the ranks beside this one, and takes the own ones. Then come gather_sums and finish, in any
  /// order that is the same on all ranks. Received by finish: each near key that another rank has once, hk + d numbers
  /// of the data's type.
  void begin(const communicator_ref& ranks) {
    if (comes_whole()) return start_block(0, ranks);
    messages_.begin(ranks, ends_of(*this));
    copy_own_keys(0, x_->local.B);
  }
  void finish(const communicator_ref& ranks) {
    if (!comes_whole()) return messages_.finish(ranks, ends_of(*this));
    for (index_t i = 0; i < blocks(); ++i) {
      wait_for_block();
      start_block(i + 1, ranks);
    }
  }

  /// Whether all ranks' keys come one by one, as they do to all ranks then, in place, by blocks of batch elements.
  /// After begin the first of them is on its way; in place of finish, for each one wait_for_block, then start_block of
  /// the next.
  bool comes_whole() const { return x_->where.reach().kind == reach_kind::everywhere && !x_->grid; }
  /// As many as hide most of their messages behind the work on those before them, each with enough columns that
  /// weights, which every block's call forms anew, cost at most 2% of its products: some 150 operations a pair beside
  /// 4 a column.
  index_t blocks() const {
    constexpr index_t most = 4, columns = 2048;
    const index_t B = x_->local.B;
    return max_of(min_of(min_of(most, B), B * x_->local.d / columns), min_of(B, index_t{1}));
  }
  /// The batch elements of block i.
  positions block(index_t i) const { return {x_->local.B * i / blocks(), x_->local.B * (i + 1) / blocks()}; }
  void start_block(index_t i, const communicator_ref& ranks) {
    if (i >= blocks()) return;
    const part& x = *x_;
    const auto [first, last] = block(i);
    copy_own_keys(first, last);
    for (int shift = 1; shift < x.ranks(); ++shift) {
      const int to = (x.rank + shift) % x.ranks(), from = (x.rank + x.ranks() - shift) % x.ranks();
      const positions out = x.where.near_from(x.rank, to), in = x.where.near_from(from, x.rank);
      for (index_t b = first; b < last; ++b)
        for (const row_block* keys : {&before.k, &before.v})
          begun_.push_back(ranks.start(rows_of(*keys, b, out), to, rows_of(*keys, b, in), from));
    }
  }
  void wait_for_block() {
    for (transfer& t : begun_) t.wait();
    begun_.clear();
  }

  /// After gather_sums, where cut::gathers_sums: the sum over all keys of a rank that cut::gives_whole.
  far_sum whole_of(int rank) const { return {wholes_.data() + rank * far_sum::size(x_->local), x_->local}; }

  /// Received: B (2 hk + d) doubles from each rank where those go to all, and as many for the rest of a rank's keys
  /// some of which are near.
  template <class C>
  void gather_sums(const own_keys<C>& own, const kernels& run, const communicator_ref& ranks) const {
    const part& x = *x_;
    const cut& where = x.where;
    const auto regions = x.regions();
    for (std::size_t i = 0; x.sums_own_keys() && i < regions.size(); ++i) {
      sum_of(i).clear();
      bool wanted = x.has_far_own_keys() || where.gives_whole(x.rank);
      for (int r = 0; r < x.ranks(); ++r) wanted = wanted || where.is_far(regions[i], r);
      if (wanted) own.fold(regions[i], run, sum_of(i));
    }
    if (where.gathers_sums()) {
      join_sums(regions, for_others_.data(), [&](const positions&) { return where.gives_whole(x.rank); });
      ranks.all_gather(bytes_of(for_others_.data()), wholes_.bytes_of(wholes_.size()));
    }
    const int n = x.ranks();
    for (int shift = 0; shift < n; ++shift) {
      const int to = (x.rank + shift) % n, from = (x.rank + n - shift) % n;
      const bool sends = where.sends_rest(x.rank, to), receives = where.sends_rest(from, x.rank);
      double* const rest = shift == 0 && sends ? sum_from(to).max : for_others_.data();
      if (sends) join_sums(regions, rest, [&](const positions& region) { return where.is_far(region, to); });
      if (shift == 0) continue;
      ranks.send_recv(sends ? bytes_of(rest) : std::span<std::byte>{}, to,
                      receives ? bytes_of(sum_from(from).max) : std::span<std::byte>{}, from);
    }
    if (!where.has_far(x.rank)) return;
    // In rank order, whoever came first.
    total().clear();
    for (int r = 0; r < n; ++r)
      if (where.sends_sums(r, x.rank)) total().merge(sum_from(r));
  }

 private:
  /// What rank_messages asks for.
  struct ends_of {
    explicit ends_of(const near_keys& of) : of_(&of) {}
    void pack(int to, message& out) const { of_->pack_keys(of_->x_->where.near_from(of_->x_->rank, to), out); }
    std::span<std::byte> inbox(int from, int slot) const {
      return of_->inbox_[static_cast<std::size_t>(slot)].bytes_of(of_->bytes_between(from, of_->x_->rank));
    }
    void take(int from, message in) const { of_->unpack(from, in); }
    const near_keys* of_;
  };

  std::span<std::byte> bytes_of(double* sum) const {
    return {static_cast<std::byte*>(static_cast<void*>(sum)),
            static_cast<std::size_t>(far_sum::size(x_->local)) * sizeof(double)};
  }
  index_t bytes_between(int from, int to) const {
    const index_t rows = x_->where.near_from(from, to).count() * x_->inner;
    return before.k.bytes(rows) + before.v.bytes(rows);
  }
  /// Of a rank's keys that are far.
  far_sum sum_from(int rank) const {
    const index_t rest = rest_at_[static_cast<std::size_t>(rank)];
    return rest < 0 ? whole_of(rank) : far_sum(rests_.data() + rest * far_sum::size(x_->local), x_->local);
  }

  static std::span<std::byte> rows_of(const row_block& keys, index_t b, const positions& some) {
    if (some.count() == 0) return {};
    return {keys.row(b, some.first), static_cast<std::size_t>(some.count() * keys.row_bytes)};
  }

  /// This rank's own near keys of batch elements [b0, b1), without a message.
  void copy_own_keys(index_t b0, index_t b1) const {
    const problem& p = x_->local;
    for (const key_block* to : {&before, &behind}) {
      const positions some = overlap(to->range, x_->keys());
      const index_t own = x_->keys().first * x_->inner, last = some.last * x_->inner;
      for (index_t b = b0; b < b1; ++b) {
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

  /// The sum of the regions that `taken` says.
  template <class Taken>
  void join_sums(const std::vector<positions>& regions, double* to, const Taken& taken) const {
    const far_sum joint(to, x_->local);
    joint.clear();
    for (std::size_t i = 0; i < regions.size(); ++i)
      if (taken(regions[i])) joint.merge(sum_of(i));
  }

  void unpack(int from, message in) const {
    const positions some = x_->where.near_from(from, x_->rank);
    const index_t first = some.first * x_->inner, n = some.count() * x_->inner;
    const key_block& to = x_->pieces.any && some.first >= x_->keys().last ? behind : before;
    to.k.get(first, n, in.take(to.k.bytes(n)));
    to.v.get(first, n, in.take(to.v.bytes(n)));
  }

  const part* x_;
  rank_messages messages_{};
  std::array<buffer<std::byte>, 2> inbox_{};
  std::vector<transfer> begun_{};
  std::vector<index_t> rest_at_{};  ///< by rank: which of rests_ is of it, or -1
  buffer<double> total_, for_others_, sums_, wholes_, rests_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
