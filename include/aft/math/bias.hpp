// SPDX-License-Identifier: Apache-2.0
/// @file bias.hpp  The position bias w[t,s] as the caller stores it. Gradients are the same types over mutable views.
#pragma once

#include <aft/core/views/not_a_view.hpp>
#include <aft/core/views/tensor_view.hpp>

namespace aft {

template <class W>
struct dense_bias;
template <class U, class V>
struct factorized_bias;
template <class W>
struct banded_bias;

namespace detail {

template <class B>
inline constexpr bool is_bias = false;
template <class W>
inline constexpr bool is_bias<dense_bias<W>> = true;
template <class U, class V>
inline constexpr bool is_bias<factorized_bias<U, V>> = true;
template <class W>
inline constexpr bool is_bias<banded_bias<W>> = true;

/// True of what is no view too: that has a message of its own.
template <class V, std::size_t Low, std::size_t High>
constexpr bool rank_within() {
  if constexpr (is_tensor_view<V>) {
    return V::rank() >= Low && V::rank() <= High;
  } else {
    return true;
  }
}

}  // namespace detail

/// A value for every pair: (Tq,Tk), (H,Tq,Tk) or (B,H,Tq,Tk), with H dividing d; stride 0 broadcasts (AFT Eq. 2).
template <class W>
struct dense_bias {
  static_assert(is_tensor_view<W>, "aft::dense_bias: w must be an aft::tensor_view");
  static_assert(detail::rank_within<W, 2, 4>(), "aft::dense_bias: w has rank 2 (Tq,Tk), 3 (H,Tq,Tk) or 4 (B,H,Tq,Tk)");
  W w;  ///< w[t,s]
};
/// @cond
template <class T, std::size_t R, class S>
dense_bias(tensor_view<T, R, S>) -> dense_bias<tensor_view<T, R, S>>;

// Of anything but views the deduced bias is one that does not compile and says why. Compilers differ in what they
// would deduce there themselves: a bias of a std::vector, or nothing.
template <>
struct dense_bias<detail::not_a_view> {
  detail::not_a_view w;
  constexpr dense_bias(const detail::not_a_view&) {}
  template <class... X>
  constexpr dense_bias(const X&...) {
    constexpr bool w_is_a_view = sizeof...(X) > 99;
    static_assert(w_is_a_view,
                  "aft::dense_bias takes one aft::tensor_view, not a container, pointer or matrix: write "
                  "aft::dense_bias{aft::tensor_view<const float, 2>{pointer, {Tq, Tk}}}, or aft::as_view(matrix)");
  }
};
template <class X>
requires(!is_tensor_view<X> && !detail::is_bias<X>) dense_bias(X)
->dense_bias<detail::not_a_view>;
template <class X, class Y, class... Z>
dense_bias(X, Y, Z...) -> dense_bias<detail::not_a_view>;
/// @endcond

/// w = u v^T with u (Tq,n) or (H,Tq,n) and v (Tk,n) or (H,Tk,n) (AFT Eq. 7); never expanded to T x T as a whole. The
/// sum over n is formed in float (double for double data): no part of it may leave that type's range, or the pair
/// counts as what came out, hidden (-inf) or NaN.
template <class U, class V = U>
struct factorized_bias {
  static_assert(is_tensor_view<U> && is_tensor_view<V>, "aft::factorized_bias: u and v must be aft::tensor_view");
  static_assert(detail::rank_within<U, 2, 3>(), "aft::factorized_bias: u has rank 2 (Tq,n) or 3 (H,Tq,n)");
  static_assert(detail::rank_within<V, 2, 3>(), "aft::factorized_bias: v has rank 2 (Tk,n) or 3 (H,Tk,n)");
  U u;  ///< Rows of queries.
  V v;  ///< Rows of keys.
};
/// @cond
template <class TU, std::size_t RankU, class SpaceU, class TV, std::size_t RankV, class SpaceV>
factorized_bias(tensor_view<TU, RankU, SpaceU>, tensor_view<TV, RankV, SpaceV>)
    -> factorized_bias<tensor_view<TU, RankU, SpaceU>, tensor_view<TV, RankV, SpaceV>>;

template <>
struct factorized_bias<detail::not_a_view, detail::not_a_view> {
  detail::not_a_view u, v;
  template <class... X>
  constexpr factorized_bias(const X&...) {
    constexpr bool u_and_v_are_views = sizeof...(X) > 99 || (detail::is_refused<X> || ...);
    static_assert(u_and_v_are_views,
                  "aft::factorized_bias takes two aft::tensor_view, not containers, pointers or matrices: write "
                  "aft::factorized_bias{aft::tensor_view<const float, 2>{pu, {Tq, n}}, "
                  "aft::tensor_view<const float, 2>{pv, {Tk, n}}}, or aft::as_view(matrix)");
  }
};
// A sole factor is a mistake too, which g++ would take as u, with no v.
template <class X>
requires(!detail::is_bias<X>) factorized_bias(X)
->factorized_bias<detail::not_a_view, detail::not_a_view>;
template <class X, class Y>
requires(!is_tensor_view<X> || !is_tensor_view<Y>) factorized_bias(X, Y)
->factorized_bias<detail::not_a_view, detail::not_a_view>;
template <class X, class Y, class Z, class... More>
factorized_bias(X, Y, Z, More...) -> factorized_bias<detail::not_a_view, detail::not_a_view>;
/// @endcond

/// For `local` only: (Tq,width) or (H,Tq,width), entry j of row t belongs to key s = t - before + j, where width is
/// before + after + 1 of the window. Entries whose key does not exist are never read; their gradient is 0.
template <class W>
struct banded_bias {
  static_assert(is_tensor_view<W>, "aft::banded_bias: w must be an aft::tensor_view");
  static_assert(detail::rank_within<W, 2, 3>(), "aft::banded_bias: w has rank 2 (Tq,width) or 3 (H,Tq,width)");
  W w;  ///< w[t,j]
};
/// @cond
template <class T, std::size_t R, class S>
banded_bias(tensor_view<T, R, S>) -> banded_bias<tensor_view<T, R, S>>;

template <>
struct banded_bias<detail::not_a_view> {
  detail::not_a_view w;
  constexpr banded_bias(const detail::not_a_view&) {}
  template <class... X>
  constexpr banded_bias(const X&...) {
    constexpr bool w_is_a_view = sizeof...(X) > 99;
    static_assert(w_is_a_view,
                  "aft::banded_bias takes one aft::tensor_view, not a container, pointer or matrix: write "
                  "aft::banded_bias{aft::tensor_view<const float, 2>{pointer, {Tq, width}}}, or aft::as_view(matrix)");
  }
};
template <class X>
requires(!is_tensor_view<X> && !detail::is_bias<X>) banded_bias(X)
->banded_bias<detail::not_a_view>;
template <class X, class Y, class... Z>
banded_bias(X, Y, Z...) -> banded_bias<detail::not_a_view>;

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
/// @endcond

}  // namespace aft
