// SPDX-License-Identifier: Apache-2.0
/// @file problem/pair_weights.hpp  w[t,s] of any bias, one pair at a time: for code that is not worth vectorising.
#pragma once

#include <limits>

#include "../views/element_access.hpp"
#include "problem.hpp"

namespace aft {
inline namespace AFT_ISA {

/// Reads a validated problem's bias. The pair must be visible: memory behind hidden pairs is not touched.
class pair_weights {
 public:
  explicit pair_weights(const problem& p) : p_(p) {}

  /// Whether query t sees key s at all, bias and k apart.
  bool visible(index_t b, index_t t, index_t s) const {
    if (t >= p_.query_limit(b) || (p_.causal && s > t + p_.first_query)) return false;
    if (s >= p_.key_limit(b) || p_.mask_hides(b, t, s)) return false;
    return !p_.excluded || inside(t, s);
  }

  double operator()(index_t b, index_t h, index_t t, index_t s) const {
    if (!inside(t, s)) return 0;
    switch (p_.bias.kind) {
      case bias_kind::none: return 0;
      case bias_kind::dense: return entry(p_.bias.w, b, h, t, s);
      case bias_kind::banded: return entry(p_.bias.w, b, h, t, s - t + p_.win.before);
      case bias_kind::factorized: return product(h, t, s);
      case bias_kind::filter: return tap(h, t, s);
      case bias_kind::generated: return generated(b, h, t, s);
      case bias_kind::sparse: return 0;  // its calls have no map of weights
    }
    return 0;
  }

 private:
  bool inside(index_t t, index_t s) const {
    if (p_.win.bounded && (s - t < -p_.win.before || s - t > p_.win.after)) return false;
    if (p_.bias.kind != bias_kind::filter) return true;
    for (int axis = 0; axis < 3; ++axis) {
      const index_t j = tap_index(axis, t, s);
      if (j < 0 || j >= p_.taps[static_cast<std::size_t>(axis)]) return false;
    }
    return true;
  }

  static double entry(const matrix& m, index_t b, index_t h, index_t row, index_t column) {
    return load_element(m.data, m.type, b * m.sb + h * m.sh + row * m.sr + column * m.sc);
  }

  double generated(index_t b, index_t h, index_t t, index_t s) const {
    const generated_rows& rows = *p_.bias.rows;
    const index_t of = p_.bias.batch > 1 ? b : 0;
    double wide = 0;
    float narrow = 0;
    rows.generate(rows.f, p_.bias.rows_batch + of, p_.bias.rows_head + h, p_.bias.rows_first + t, s,
                  rows.wide ? static_cast<void*>(&wide) : &narrow, 1);
    return rows.wide ? wide : static_cast<double>(narrow);
  }

  /// Where a part of it leaves the range, though the sum need not, by factors that are 2^520 times smaller.
  double product(index_t h, index_t t, index_t s) const {
    const double sum = product(h, t, s, 1);
    return sum - sum == 0 ? sum : product(h, t, s, 0x1p-520) * 0x1p520 * 0x1p520;
  }
  double product(index_t h, index_t t, index_t s, double scale) const {
    double sum = 0;
    for (index_t n = 0; n < p_.bias.rank; ++n)
      sum += (entry(p_.bias.u, 0, h, t, n) * scale) * (entry(p_.bias.v, 0, h, s, n) * scale);
    return sum;
  }

  index_t tap_index(int axis, index_t t, index_t s) const {
    const auto a = static_cast<std::size_t>(axis);
    // Positions of a sequence are no coordinates of a grid: there may be more queries than keys.
    if (p_.grid[0] == 1 && p_.grid[1] == 1) return (axis == 2 ? s - t : 0) + p_.left[a];
    for (std::size_t i = 2; i > a; --i) {
      t /= p_.grid[i];
      s /= p_.grid[i];
    }
    return s % p_.grid[a] - t % p_.grid[a] + p_.left[a];
  }

  double tap(index_t h, index_t t, index_t s) const {
    index_t offset = h * p_.bias.r_sh;
    for (int axis = 0; axis < 3; ++axis) offset += tap_index(axis, t, s) * p_.bias.r_sj[static_cast<std::size_t>(axis)];
    return load_element(p_.bias.r, p_.bias.r_type, offset);
  }

  const problem& p_;
};

}  // namespace AFT_ISA
}  // namespace aft
