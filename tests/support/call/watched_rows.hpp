// SPDX-License-Identifier: Apache-2.0
/// @file watched_rows.hpp  A dense bias as a generated one: its function and that of its gradient hold the library to
/// what it promises of their calls.
#pragma once

#include <aft/math/generated_bias.hpp>

#include <atomic>
#include <string>
#include <vector>

#include "setup.hpp"

namespace aft::test {

template <class C>
class watched_rows {
 public:
  /// `w` as row-major numbers, which the function returns.
  watched_rows(const setup& s, const std::vector<long double>& w)
      : s_(s),
        per_batch_(s.bias == bias_form::dense_bhtt),
        H_(s.heads()),
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
      if (part != ((b * H_ + h) * s_.Tq + t - s_.first_query) % parts) strays_ |= wrong_part;
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
    // Where a mask tells batch elements apart each of them packs weights of its own.
    const int times = s_.mask == mask_form::batch_pairs ? static_cast<int>(s_.B) : 1;
    for (const auto& n : asked_)
      if (n > (backward ? 4 : 1) * times) return "asked too often";
    index_t at = 0;
    for (index_t row = 0; backward && row < static_cast<index_t>(taken_.size()) / (s_.Tk > 0 ? s_.Tk : 1); ++row) {
      const index_t t = row % s_.Tq + s_.first_query;
      for (index_t s = 0; s < s_.Tk; ++s, ++at) {
        const bool inside = s_.call != op::local || (s >= t - s_.win.before && s <= t + s_.win.after);
        if (taken_[static_cast<std::size_t>(at)] != (inside ? 1 : 0)) return "a pair of dbias not once";
      }
    }
    return "";
  }

 private:
  enum stray { strange_pair = 1, wrong_part = 2, wrong_order = 4 };
  static constexpr index_t parts = 3;

  /// Where a row begins in w, below 0 if it leaves the tensors.
  index_t place(index_t b, index_t h, index_t t, index_t s0, index_t count) const noexcept {
    t -= s_.first_query;
    const bool there = b >= 0 && b < (per_batch_ ? s_.B : 1) && h >= 0 && h < H_ && t >= 0 && t < s_.Tq && s0 >= 0 &&
                       count > 0 && s0 + count <= s_.Tk;
    if (there) return ((b * H_ + h) * s_.Tq + t) * s_.Tk + s0;
    strays_ |= strange_pair;
    return -1;
  }

  setup s_;
  bool per_batch_;
  index_t H_;
  std::vector<C> values_;
  mutable std::vector<std::atomic<int>> asked_, taken_;
  mutable std::vector<C> dw_;
  mutable std::atomic<int> strays_{0};
  mutable std::atomic<bool> busy_[parts] = {};
  mutable index_t next_[parts] = {};
};

}  // namespace aft::test
