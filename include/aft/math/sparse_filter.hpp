// SPDX-License-Identifier: Apache-2.0
/// @file sparse_filter.hpp  A filter of AFT-conv that is written tap by tap, as few of them as there are.
#pragma once

#include <aft/core/views/tensor_view.hpp>

namespace aft {

/// The taps of AFT-conv one by one: w[t,s] = values[h, i] where s - t is taps[h, i], and 0 for every other pair. What
/// training by aft::gumbel_filter leaves of a filter, one tap a head, costs no more than AFT-simple (AFT, below Eq.
/// 10).
///
/// taps: (H, m) of int32 or int64 on a sequence, (H, m, axes) on a grid: signed offsets s - t, of the first axis first.
/// An offset that leads beyond the grid everywhere is no mistake. values: (H, m), of the data's type or float (double
/// for double data). Any strides. Both are read while the call runs.
template <class Taps, class Values>
struct sparse_filter {
  static_assert(is_tensor_view<Taps> && is_tensor_view<Values>,
                "aft::sparse_filter: taps and values must be aft::tensor_view");
  Taps taps;      ///< s - t
  Values values;  ///< w where s - t is the tap
};
/// @cond
template <class T, std::size_t R, class S, class U, std::size_t Q, class Z>
sparse_filter(tensor_view<T, R, S>, tensor_view<U, Q, Z>) -> sparse_filter<tensor_view<T, R, S>, tensor_view<U, Q, Z>>;

template <class F>
inline constexpr bool is_sparse_filter = false;
template <class Taps, class Values>
inline constexpr bool is_sparse_filter<sparse_filter<Taps, Values>> = true;
/// @endcond

}  // namespace aft
