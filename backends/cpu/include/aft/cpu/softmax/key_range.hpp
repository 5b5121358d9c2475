// SPDX-License-Identifier: Apache-2.0
/// @file softmax/key_range.hpp  What the scales of a lane tile's keys and values follow from: their extremes.
#pragma once

#include <limits>

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The largest and the least size of values; 0 counts as none.
template <class C>
struct magnitudes {
  vec<C> high = vec<C>(C(0));
  vec<C> low = vec<C>(std::numeric_limits<C>::infinity());

  /// Of the finite values that are seen.
  void add(const vec<C>& value, const vec_mask<C>& seen) {
    const vec<C> zero(C(0)), inf(std::numeric_limits<C>::infinity());
    const vec<C> size = (xsimd::abs)(value);
    const vec<C> known = xsimd::select(seen && (size < inf), size, zero);
    high = max_ignoring_nan<C>(high, known);
    low = min_ignoring_nan<C>(low, xsimd::select(known > zero, known, inf));
  }
  /// In fewer instructions where an infinite value may count as the largest, and one that is not seen is 0.
  void add_any(const vec<C>& value) {
    const vec<C> size = (xsimd::abs)(value);
    high = larger_size<C>(high, value);
    low = xsimd::select(size > vec<C>(C(0)), min_ignoring_nan<C>(low, size), low);
  }
};

/// The largest key of each lane, NaN passed over, and the sizes of the values whose keys are not hidden.
template <class C>
struct key_range {
  vec<C> top = vec<C>(-std::numeric_limits<C>::infinity());
  magnitudes<C> values;

  void add(const vec<C>& key, const vec<C>& value) {
    top = max_ignoring_nan<C>(top, key);
    values.add(value, differs<C>(key, vec<C>(-std::numeric_limits<C>::infinity())));
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
