// SPDX-License-Identifier: Apache-2.0
/// @file softmax/first_key.hpp  The key by whose weight those of a lane are divided, so that sums of many equal ones
/// are exact.
#pragma once

#include <limits>

#include "../math/exp_weight.hpp"
#include "../tensor/visible_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The first key of each lane that is not hidden, -inf where there is none, and the unit of its lane: the mantissa of
/// its weight, by whose inverse all weights are multiplied.
///
/// Sums of many equal weights with all their digits are rounded in one direction by every addition: 1000 keys of one
/// value, the bias of a projection that is still 0, cost an average 63 units in the last place. In this unit their
/// weights are powers of two, and their sums exact. Every row of a causal call that sees any key sees the first one.
template <class C>
class first_key {
 public:
  first_key() = default;
  explicit first_key(const vec<C>& key) : key_(key), unit_(weight_unit<C>(key)) {}
  /// Of n rows of keys, hidden ones marked.
  [[gnu::noinline]] first_key(const C* keys, index_t step, index_t n) {
    for (index_t s = 0; s < n && !xsimd::all(seen(key_)); ++s) add(load(keys + s * step));
    unit_ = weight_unit<C>(key_);
  }
  [[gnu::noinline]] first_key(const problem& p, const lane_tile<C>& tile) {
    const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
    const auto idle = tile.idle();
    C row[lanes<C>];
    for (index_t s = 0; s < p.Tk && !xsimd::all(seen(key_) || idle); ++s) {
      keys.read(s, s + 1, row, -std::numeric_limits<C>::infinity());
      hide_keys(p, tile, s, s + 1, row);
      add(load(row));
    }
    unit_ = weight_unit<C>(key_);
  }

  /// From the row of key 0 at k if that is the first one in all lanes, else by a search.
  template <class T>
  static first_key at(const T* k, const problem& p, const lane_tile<C>& tile) {
    const vec<C> key = load_as<C>(k);
    return xsimd::all(seen(key)) || xsimd::all(seen(key) || tile.idle()) ? first_key(key) : first_key(p, tile);
  }

  const vec<C>& unit() const { return unit_; }
  /// Of weights that are divided by exp(base).
  vec<C> unit(const vec<C>& base) const {
    return xsimd::all(base == vec<C>(C(0))) ? unit_ : weight_unit<C>(key_ - base);
  }

 private:
  static vec_mask<C> seen(const vec<C>& key) { return differs<C>(key, vec<C>(-std::numeric_limits<C>::infinity())); }
  void add(const vec<C>& key) { key_ = xsimd::select(seen(key_), key_, key); }

  vec<C> key_ = vec<C>(-std::numeric_limits<C>::infinity()), unit_ = vec<C>(C(1));
};

}  // namespace aft::inline AFT_ISA::cpu_impl
