// SPDX-License-Identifier: Apache-2.0
/// @file softmax/far_lanes.hpp  The key that stands for those of other ranks, on the lanes of a tile, and what its
/// gradients follow from.
#pragma once

#include <cmath>

#include "../math/gates.hpp"
#include "../tensor/stage.hpp"
#include "exact_row.hpp"
#include "exact_weight.hpp"
#include "key_range.hpp"
#include "sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// One key that counts `den` times, see far_keys; hidden, with den 0, where a lane has none or the call has none.
template <class C>
struct far_lanes {
  vec<C> key = vec<C>(-std::numeric_limits<C>::infinity());
  vec<C> value = vec<C>(C(0)), den = value;
  bool any = false;

  far_lanes() = default;
  far_lanes(const problem& p, const lane_tile<C>& tile) : any(p.afar.joins_rows()) {
    if (any) read(p, tile);
  }

  vec_mask<C> seen() const { return differs<C>(key, vec<C>(-std::numeric_limits<C>::infinity())); }
  /// A den of NaN is a sum that has seen one.
  bool sees(index_t lane) const {
    C dens[lanes<C>];
    store(dens, den);
    return dens[lane] != C(0);
  }

  /// Adds it to what scales follow from.
  void measure(key_range<C>& range) const {
    if (any) range.add(key, value);
  }
  /// [num, den] from what the key alone would be packed to.
  vec_sum<C> times(const vec_sum<C>& one) const { return {one.num * den, one.den * den}; }

  /// Powers of two that no den is beyond, at least one.
  index_t bits() const {
    C dens[lanes<C>];
    store(dens, den);
    int most = 1;
    for (const C one : dens) {
      int bit = 0;
      std::frexp(one, &bit);
      most = max_of(most, one == one ? bit + 1 : 1);
    }
    return most;
  }
  /// Takes the key into a row's units.
  void show(exact_row_units<C>& units) const {
    if (any) units.see(key, vec<C>(C(0)), value, seen());
  }
  /// Its part of the row's sum.
  vec_sum<C> sum_in(const exact_row_units<C>& units) const {
    if (!any) return zero_sum<C>();
    const exact_term<C> x = units.term(key, vec<C>(C(0)), value, seen());
    return times({x.factor * x.weighted, x.factor * x.mass});
  }

 private:
  [[gnu::noinline]] void read(const problem& p, const lane_tile<C>& tile) {
    const index_t group = p.d / p.hk;
    C keys[lanes<C>], values[lanes<C>] = {}, dens[lanes<C>] = {};
    for (index_t l = 0; l < lanes<C>; ++l) keys[l] = -std::numeric_limits<C>::infinity();
    for (index_t l = 0; l < tile.count; ++l) {
      const index_t i = tile.b[l] * p.hk + tile.c[l] / group;
      if (p.afar.den[i] == 0) continue;
      keys[l] = static_cast<C>(p.afar.max[i]);
      dens[l] = static_cast<C>(p.afar.den[i]);
      values[l] = static_cast<C>(p.afar.average[tile.b[l] * p.d + tile.c[l]]);
    }
    key = load(keys);
    value = load(values);
    den = load(dens);
  }
};

/// slope and offset of a lane tile, from rows that come by blocks. With x the far average, a row's terms are a g and
/// a g (x - o): what differs little is subtracted while all digits are there.
template <class C>
class far_row_sums {
 public:
  far_row_sums() = default;
  far_row_sums(const problem& p, const lane_tile<C>& tile) : keys_(p, tile) {}

  /// Adds rows [t0, t1) of `rows`, see saved_rows.
  template <class Rows>
  void add(const Rows& rows, index_t t0, index_t t1) {
    for (index_t t = t0; t < t1; t += together) add_block(rows, t, min_of(t + together, t1));
  }

  void write(const problem& p, const lane_tile<C>& tile) const {
    for (index_t l = 0; l < tile.count; ++l) {
      const index_t to = tile.b[l] * p.d + tile.c[l];
      const double x = static_cast<double>(static_cast<C>(p.afar.average[to]));
      p.afar.slope[to] = slope_[l];
      // Without a term nothing is NaN, whatever the average is.
      p.afar.offset[to] = slope_[l] == 0 ? -rest_[l] : x * slope_[l] - rest_[l];
    }
  }

 private:
  static constexpr index_t together = 32;  ///< rows that are summed in C

  template <class Rows>
  [[gnu::noinline]] void add_block(const Rows& rows, index_t t0, index_t t1) {
    vec_sum<C> block = zero_sum<C>();
    for (index_t t = t0; t < t1; ++t) {
      const pair_gradient_terms<C> terms = exact_pair_terms<C>(rows, t, keys_.key, vec<C>(C(0)), keys_.value);
      block = block + vec_sum<C>{terms.dv, terms.dk};
    }
    C one[2 * lanes<C>];
    store_sum(one, block);
    // Lane by lane, as their neighbours may be of another batch element.
    for (index_t l = 0; l < lanes<C>; ++l) {
      const double dv = static_cast<double>(one[l]), dk = static_cast<double>(one[lanes<C> + l]);
      if (std::isfinite(dv) && std::isfinite(dk)) {
        slope_[l] += dv;
        rest_[l] += dk;
      } else {
        add_wide(rows, t0, t1, l);
      }
    }
  }

  /// Terms that leave the range of C: of a key that counts many times they may, though those of each one do not.
  template <class Rows>
  [[gnu::noinline]] void add_wide(const Rows& rows, index_t t0, index_t t1, index_t l) {
    C x[lanes<C>], mantissa[lanes<C>], exponent[lanes<C>];
    store(x, keys_.value);
    if (!keys_.sees(l)) return;
    for (index_t t = t0; t < t1; ++t) {
      const index_t at = t * lanes<C>;
      if (rows.inverse[at + l] == C(0)) continue;
      const exact_factor<C> a =
          exact_weight<C>(keys_.key, vec<C>(C(0)), load(rows.inverse + at), load(rows.exponent + at),
                          load(rows.base_hi + at), load(rows.base_lo + at));
      store(mantissa, a.mantissa);
      store(exponent, a.exponent);
      // Of a row that saw NaN the exponent may be no number.
      const double power = static_cast<double>(exponent[l]), scaled = static_cast<double>(mantissa[l]);
      const double weight = std::isfinite(power) ? std::ldexp(scaled, static_cast<int>(power)) : power;
      const double dv = weight * static_cast<double>(rows.g[at + l]);
      slope_[l] += dv;
      rest_[l] += dv * (static_cast<double>(x[l]) - static_cast<double>(rows.o[at + l]));
    }
  }

  far_lanes<C> keys_;
  double slope_[lanes<C>] = {}, rest_[lanes<C>] = {};
};

}  // namespace aft::inline AFT_ISA::cpu_impl
