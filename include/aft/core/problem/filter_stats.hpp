// SPDX-License-Identifier: Apache-2.0
/// @file problem/filter_stats.hpp  The taps of one head of a filter, normalised to mean 0 and standard deviation 1.
#pragma once

#include <cmath>
#include <limits>

#include "../views/any_view.hpp"
#include "../views/element_access.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// Head h of a filter (H, taps...) with its taps counted row-major.
class tap_row {
 public:
  tap_row(const any_view& filter, index_t head) : view_(filter), base_(head * filter.stride(0)) {
    for (std::size_t i = 1; i < filter.rank(); ++i) size_ *= filter.extent(i);
  }

  index_t size() const { return size_; }
  double load(index_t tap) const { return load_element(view_.data(), view_.type(), offset(tap)); }
  void store(index_t tap, double x) const { store_element(view_.data(), view_.type(), offset(tap), x); }

 private:
  index_t offset(index_t tap) const {
    index_t at = base_;
    for (std::size_t i = view_.rank(); i-- > 1;) {
      at += tap % view_.extent(i) * view_.stride(i);
      tap /= view_.extent(i);
    }
    return at;
  }

  any_view view_;
  index_t base_ = 0;
  index_t size_ = 1;
};

/// Mean and standard deviation (N-1 below the root, as torch.std) of a head's taps.
///
/// Taps are taken relative to the first one and scaled by a power of two before anything is added: a large common
/// offset then costs no digits, and squares neither overflow nor vanish. Two passes, in a fixed order.
class filter_stats {
 public:
  explicit filter_stats(const tap_row& taps) {
    const index_t n = taps.size();
    if (n < 2) return;
    base_ = taps.load(0);
    double low = base_;
    double high = base_;
    bool finite = true;
    for (index_t i = 0; i < n; ++i) {
      const double x = taps.load(i);
      finite = finite && std::isfinite(x);
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    if (!finite) {
      // The mean or a difference from it is not a number, and so is every tap of the head.
      constant_ = false;
      deviation_ = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    constant_ = low == high;
    if (constant_) return;
    // The distance between two doubles can exceed the largest double; halves of them cannot.
    if (!std::isfinite(high - low)) factor_ = 0.5;
    exponent_ = std::ilogb(high * factor_ - low * factor_);
    double sum = 0;
    for (index_t i = 0; i < n; ++i) sum += scaled(taps.load(i));
    mean_ = sum / static_cast<double>(n);
    double squares = 0;
    for (index_t i = 0; i < n; ++i) {
      const double z = scaled(taps.load(i)) - mean_;
      squares += z * z;
    }
    deviation_ = std::sqrt(squares / static_cast<double>(n - 1));
  }

  /// All taps are equal, or there is one at most: the standard deviation is 0, or undefined.
  bool constant() const { return constant_; }
  /// (x - mean) / std.
  double normalised(double x) const { return (scaled(x) - mean_) / deviation_; }
  /// gain x / std, in the filter's own unit. Exponents apart: x / std may lie past the largest double, and the gain
  /// bring it back.
  double per_deviation(double gain, double x) const {
    int of_gain = 0, of_x = 0;
    const double product = std::frexp(gain, &of_gain) * std::frexp(x / deviation_ * factor_, &of_x);
    return std::isfinite(product) ? std::ldexp(product, of_gain + of_x - exponent_) : product;
  }

 private:
  double scaled(double x) const { return std::ldexp(x * factor_ - base_ * factor_, -exponent_); }

  bool constant_ = true;
  double base_ = 0;
  double factor_ = 1;
  int exponent_ = 0;
  double mean_ = 0;
  double deviation_ = 0;
};

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
