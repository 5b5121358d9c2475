// SPDX-License-Identifier: Apache-2.0
/// @file watched_rows.hpp  A dense bias as a generated one: its function and that of its gradient hold the library to
/// what it promises of their calls.
#pragma once

#include <aft/math/generated_bias.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <vector>

#include "sequences.hpp"

namespace aft::test {

template <class C>
class watched_rows {
 public:
  /// `w` as row-major numbers, which the function returns.
  watched_rows(const setup& s, const std::vector<long double>& w)
      : s_(s),
        per_batch_(s.bias == bias_form::dense_bhtt),
        H_(s.heads()),
        before_(offsets_of(s.packed)),
        values_(w.begin(), w.end()),
        asked_(w.size()),
        taken_(w.size()),
        dw_(w.size()) {}

  auto bias() const {
    const auto f = [this](index_t b, index_t h, index_t t, index_t s0, std::span<C> row) noexcept {
      const index_t count = static_cast<index_t>(row.size()), at = place(b, h, t, s0, count);
      if (at < 0) return;
      const index_t last = s0 + count - 1;
      const bool outside = s_.call == op::local && (s0 < t - s_.win.before || last > t + s_.win.after);
      if (outside || (s_.causal && last > t)) strays_ |= strange_pair;
      for (index_t i = 0; i < count; ++i) {
        row[static_cast<std::size_t>(i)] = values_[static_cast<std::size_t>(at + i)];
        ++asked_[static_cast<std::size_t>(at + i)];
      }
    };
    return per_batch_ ? generated_bias{H_, f, per_batch} : generated_bias{H_, f};
  }

  auto gradient() const {
    const auto f = [this](index_t part, index_t b, index_t h, index_t t, index_t s0, std::span<const C> dw) noexcept {
      const index_t count = static_cast<index_t>(dw.size()), at = place(b, h, t, s0, count);
      if (at < 0 || part < 0 || part >= parts) {
        strays_ |= strange_pair;
        return;
      }
      if (part != (rows_before(b) + h * queries(b) + t - s_.first_query) % parts) strays_ |= wrong_part;
      if (busy_[part].exchange(true) || at < next_[part]) strays_ |= wrong_order;
      next_[part] = at + count;
      for (index_t i = 0; i < count; ++i) {
        dw_[static_cast<std::size_t>(at + i)] = dw[static_cast<std::size_t>(i)];
        ++taken_[static_cast<std::size_t>(at + i)];
      }
      busy_[part] = false;
    };
    return generated_bias_gradient{f, parts};
  }

  /// What the gradient's function was given.
  const std::vector<C>& dw() const { return dw_; }

  /// Empty, or what a call that returned did otherwise than promised.
  std::string damage(bool backward) const {
    if ((strays_ & strange_pair) != 0) return "asked for what is not there";
    if ((strays_ & wrong_part) != 0) return "a row in another part";
    if ((strays_ & wrong_order) != 0) return "rows of a part out of order";
    // Where a mask tells batch elements apart each of them packs weights of its own; sequences are elements that have
    // no call in common, and neither have the parts of a stream.
    int times = s_.mask == mask_form::batch_pairs || !s_.cuts.empty() ? static_cast<int>(s_.B) : 1;
    if (!s_.packed.empty() && !per_batch_) times = static_cast<int>(s_.packed.size());
    for (const auto& n : asked_)
      if (n > (backward ? 4 : 1) * times) return "asked too often";
    return backward ? untaken() : "";
  }

 private:
  enum stray { strange_pair = 1, wrong_part = 2, wrong_order = 4 };
  static constexpr index_t parts = 3;

  /// Queries and keys that there are of batch element b, or of sequence b where it has a bias of its own; sequences
  /// that share one have those of the longest.
  index_t queries(index_t b) const { return length(s_.packed, b, s_.Tq); }
  index_t keys(index_t b) const { return length(s_.key_counts(), b, s_.Tk); }
  index_t length(const std::vector<index_t>& lengths, index_t b, index_t T) const {
    if (lengths.empty()) return T;
    return per_batch_ ? lengths[static_cast<std::size_t>(b)] : *std::max_element(lengths.begin(), lengths.end());
  }
  index_t batch() const { return !per_batch_ ? 1 : (s_.packed.empty() ? s_.B : std::ssize(s_.packed)); }
  /// Rows of the gradient that come before those of b.
  index_t rows_before(index_t b) const {
    return H_ * (s_.packed.empty() || !per_batch_ ? b * s_.Tq : before_[static_cast<std::size_t>(b)]);
  }
  /// Rows and columns that w has.
  index_t height() const { return s_.packed.empty() ? s_.Tq : longest(s_.packed) + s_.spare; }
  index_t width() const { return s_.packed.empty() ? s_.Tk : longest(s_.key_counts()) + s_.spare; }
  static index_t longest(const std::vector<index_t>& lengths) {
    return *std::max_element(lengths.begin(), lengths.end());
  }

  /// Empty, or that a pair of the gradient did not come once.
  std::string untaken() const {
    std::vector<char> expected(taken_.size());
    for (index_t b = 0; b < batch(); ++b)
      for (index_t h = 0; h < H_; ++h)
        for (index_t t = 0; t < queries(b); ++t)
          for (index_t s = 0; s < keys(b); ++s) {
            const index_t position = t + s_.first_query;
            const bool inside = s_.call != op::local || (s >= position - s_.win.before && s <= position + s_.win.after);
            expected[static_cast<std::size_t>(((b * H_ + h) * height() + t) * width() + s)] = inside;
          }
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (taken_[i] != expected[i]) return "a pair of dbias not once";
    return "";
  }

  /// Where a row begins in w, below 0 if it leaves the tensors.
  index_t place(index_t b, index_t h, index_t t, index_t s0, index_t count) const noexcept {
    t -= s_.first_query;
    const bool there = b >= 0 && b < batch() && h >= 0 && h < H_ && t >= 0 && t < queries(b) && s0 >= 0 && count > 0 &&
                       s0 + count <= keys(b);
    if (there) return ((b * H_ + h) * height() + t) * width() + s0;
    strays_ |= strange_pair;
    return -1;
  }

  setup s_;
  bool per_batch_;
  index_t H_;
  std::vector<std::int64_t> before_;
  std::vector<C> values_;
  mutable std::vector<std::atomic<int>> asked_, taken_;
  mutable std::vector<C> dw_;
  mutable std::atomic<int> strays_{0};
  mutable std::atomic<bool> busy_[parts] = {};
  mutable index_t next_[parts] = {};
};

}  // namespace aft::test
