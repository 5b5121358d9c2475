// SPDX-License-Identifier: Apache-2.0
/// @file bias.hpp  The position bias w[t,s] as the caller stores it. Gradients are the same types over mutable views.
#pragma once

#include <aft/core/tensor_view.hpp>

namespace aft {

/// A value for every pair: (Tq,Tk), (H,Tq,Tk) or (B,H,Tq,Tk), with H dividing d; stride 0 broadcasts (AFT Eq. 2).
template <class W>
struct dense_bias {
  static_assert(is_tensor_view<W>, "aft::dense_bias: w must be an aft::tensor_view");
  static_assert(W::rank() >= 2 && W::rank() <= 4,
                "aft::dense_bias: w has rank 2 (Tq,Tk), 3 (H,Tq,Tk) or 4 (B,H,Tq,Tk)");
  W w;
};
template <class T, std::size_t R, class S>
dense_bias(tensor_view<T, R, S>) -> dense_bias<tensor_view<T, R, S>>;

/// w = u v^T with u (Tq,n) or (H,Tq,n) and v (Tk,n) or (H,Tk,n) (AFT Eq. 7); never expanded to T x T as a whole. The
/// sum over n is formed in float (double for double data): no part of it may leave that type's range, or the pair
/// counts as what came out, hidden (-inf) or NaN.
template <class U, class V = U>
struct factorized_bias {
  static_assert(is_tensor_view<U> && is_tensor_view<V>, "aft::factorized_bias: u and v must be aft::tensor_view");
  static_assert(U::rank() >= 2 && U::rank() <= 3, "aft::factorized_bias: u has rank 2 (Tq,n) or 3 (H,Tq,n)");
  static_assert(V::rank() >= 2 && V::rank() <= 3, "aft::factorized_bias: v has rank 2 (Tk,n) or 3 (H,Tk,n)");
  U u;
  V v;
};
template <class TU, std::size_t RankU, class SpaceU, class TV, std::size_t RankV, class SpaceV>
factorized_bias(tensor_view<TU, RankU, SpaceU>, tensor_view<TV, RankV, SpaceV>)
    -> factorized_bias<tensor_view<TU, RankU, SpaceU>, tensor_view<TV, RankV, SpaceV>>;

/// For `local` only: (Tq,width) or (H,Tq,width), entry j of row t belongs to key s = t - before + j, where width is
/// before + after + 1 of the window. Entries whose key does not exist are never read; their gradient is 0.
template <class W>
struct banded_bias {
  static_assert(is_tensor_view<W>, "aft::banded_bias: w must be an aft::tensor_view");
  static_assert(W::rank() >= 2 && W::rank() <= 3, "aft::banded_bias: w has rank 2 (Tq,width) or 3 (H,Tq,width)");
  W w;
};
template <class T, std::size_t R, class S>
banded_bias(tensor_view<T, R, S>) -> banded_bias<tensor_view<T, R, S>>;

template <class B>
inline constexpr bool is_dense_bias = false;
template <class W>
inline constexpr bool is_dense_bias<dense_bias<W>> = true;
template <class B>
inline constexpr bool is_factorized_bias = false;
template <class U, class V>
inline constexpr bool is_factorized_bias<factorized_bias<U, V>> = true;
template <class B>
inline constexpr bool is_banded_bias = false;
template <class W>
inline constexpr bool is_banded_bias<banded_bias<W>> = true;

}  // namespace aft
