// SPDX-License-Identifier: Apache-2.0
/// @file conv.hpp  AFT-conv: one learned bias per relative position, on a 1-D, 2-D or 3-D grid (AFT Eq. 6; DAFT Eq. 7,
/// 8).
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/checks/prepare.hpp>

#include "erase.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

/// Whether the taps of a sparse filter are integers in the space of the executor, of a rank that goes with values.
template <class E, class T, class Taps, class Values>
constexpr bool check_sparse_filter() {
  using number = typename Taps::value_type;
  constexpr bool alone = executor<E>;
  static_assert(alone,
                "aft::conv: aft::split does not cut calls with a sparse filter: use aft::cpu or aft::cuda, or an "
                "aft::conv with a view");
  // That values lie where the executor works is asked below.
  constexpr bool one_space = std::is_same_v<typename Taps::space, typename Values::space>;
  static_assert(one_space, "aft::sparse_filter: taps and values must be views of one space, that of q, k and v");
  constexpr bool integers = std::is_integral_v<number> && std::is_signed_v<number> && sizeof(number) >= 4;
  static_assert(integers, "aft::sparse_filter: taps must be of int32 or int64, the signed offsets s - t");
  constexpr bool ranks_fit = (Taps::rank() == 2 || Taps::rank() == 3) && Values::rank() == 2;
  static_assert(ranks_fit, "aft::sparse_filter: taps has rank 2 (H, m) or 3 (H, m, axes), values has rank 2 (H, m)");
  if constexpr (alone && one_space && integers && ranks_fit) {
    return detail::check_bias_tensor<detail::arg::filter, E, T, Values>();
  } else {
    return false;
  }
}

template <detail::arg Argument, class E, class T, class Filter>
constexpr bool check_filter() {
  if constexpr (is_sparse_filter<Filter>) {
    return check_sparse_filter<E, T, decltype(Filter::taps), decltype(Filter::values)>();
  } else if constexpr (detail::check_bias_tensor<Argument, E, T, Filter>()) {
    constexpr bool rank_fits = Filter::rank() >= 2 && Filter::rank() <= 4;
    static_assert(rank_fits, "aft::conv: filter has rank 2 (H, taps), 3 (H, kh, kw) or 4 (H, kd, kh, kw)");
    return rank_fits;
  } else {
    return false;
  }
}

/// Where the gradient of a filter is written: of a sparse filter to its values.
template <class DFilter>
decltype(auto) written_values(const DFilter& dfilter) {
  if constexpr (is_sparse_filter<DFilter>) {
    return (dfilter.values);
  } else {
    return (dfilter);
  }
}

/// Whether a gradient has the rank of what it is of; anything that is no view is refused elsewhere.
template <class Filter, class DFilter>
constexpr bool filter_gradient_has_rank() {
  using written = std::remove_cvref_t<decltype(written_values(std::declval<const DFilter&>()))>;
  if constexpr (is_tensor_view<written>) {
    if constexpr (is_sparse_filter<Filter>) {
      return written::rank() == 2;
    } else if constexpr (is_tensor_view<Filter>) {
      return written::rank() == Filter::rank();
    }
  }
  return true;
}

template <class E, class T, class Filter, class DFilter>
constexpr bool filter_gradient_has_type() {
  using written = std::remove_cvref_t<decltype(written_values(std::declval<const DFilter&>()))>;
  if constexpr (!filter_gradient_has_rank<Filter, DFilter>()) {
    return false;
  } else if constexpr (is_sparse_filter<Filter>) {
    return detail::check_bias_tensor<detail::arg::dfilter, E, T, written>();
  } else {
    return check_filter<detail::arg::dfilter, E, T, DFilter>();
  }
}

template <class E, class T, class Filter, class DFilter>
constexpr bool check_filter_gradient() {
  using written = std::remove_cvref_t<decltype(written_values(std::declval<const DFilter&>()))>;
  if constexpr (detail::is_no_grad<DFilter>) {
    return true;
  } else if constexpr (filter_gradient_has_type<E, T, Filter, DFilter>()) {
    return detail::check_mutable<written>();
  } else {
    return false;
  }
}

/// Ranks of q, k, v, y that go with a filter: a sequence may leave out the batch, a grid may not, because (H, W, d)
/// would read as (B, T, d). How many axes the taps of a sparse filter have is known when the call runs.
struct rank_span {
  std::size_t low, high;
};
template <class Filter, class V>
constexpr rank_span ranks_with_filter() {
  if constexpr (is_sparse_filter<Filter>) {
    if constexpr (is_tensor_view<V>) {
      if (decltype(Filter::taps)::rank() == 3 && V::rank() >= 3) return {V::rank(), V::rank() > 5 ? 5 : V::rank()};
    }
    return {decltype(Filter::taps)::rank() == 3 ? std::size_t{3} : std::size_t{2}, 3};
  } else {
    return {Filter::rank() == 2 ? 2 : Filter::rank() + 1, Filter::rank() + 1};
  }
}

/// Whether queries and keys may differ in number: on a sequence.
template <class Filter, class V>
constexpr bool lengths_may_differ() {
  if constexpr (is_sparse_filter<Filter>) {
    return V::rank() <= 3;
  } else {
    return Filter::rank() == 2;
  }
}

template <class C, class Filter>
void set_filter(call& c, const Filter& filter) {
  if constexpr (is_sparse_filter<Filter>) {
    c.bias.kind = bias_kind::sparse;
    c.sparse.emplace();
    c.sparse->taps.view = filter.taps;
    c.sparse->values.view = filter.values;
  } else {
    set_bias<C>(c.bias, filter);
  }
}

}  // namespace checks

/// AFT-conv: as aft::full, with w[t,s] = filter[h, s - t + left] where s lies under the filter centred on t, and 0
/// elsewhere. Keys elsewhere still count (global connectivity), unless options.outside is outside::excluded.
///
/// Shapes: filter (H, taps) with q, v, y (B, T, d) or (T, d); filter (H, kh, kw) with (B, H, W, d); filter
/// (H, kd, kh, kw) with (B, D, H, W, d). k has hk channels in place of d; the papers tie hk to the heads of the filter.
/// On a sequence q and y may have another length Tq than k and v: query t then stands at position
/// p = options.first_query + t among the keys, and such a call takes the time of one on the sequence that holds both,
/// and O(T d) scratch. The number of heads divides d and channel c uses head c / (d/heads); hk divides d likewise. Taps
/// may be odd or even and more than the grid is wide; a filter without taps is AFT-simple. left = (taps-1)/2 per axis
/// ("same" placement); with options.causal, for 1-D grids only, left = taps-1. It is a cross-correlation, as in every
/// deep-learning framework: y at p reads key p + j - left with weight exp(filter[j]). Types: q, k, v, y hold one of
/// float, double, half, bfloat16; the filter holds the same or float (double for double). Options: all; a mask is (B|1,
/// T|1, T) with T the number of grid points in row-major order, key_lengths counts points in that order, lse and
/// average have the grid's shape, (B, H, W, hk) and (B, H, W, d). Strides, errors: as aft::full; causal on a 2-D or 3-D
/// grid is a shape_error. Cost: O(B T taps d) multiply-adds, and O(B T d) for everything outside the filter.
///
/// A filter may also be an aft::sparse_filter{taps, values}: w[t,s] = values[h, i] where s - t is taps[h, i], 0
/// elsewhere (AFT, below Eq. 10). Without streams, and not over aft::split. An offset twice in a head, one above 0 in a
/// causal call or beyond 2^61 is a shape_error on the host. With aft::cuda the host cannot read taps without waiting:
/// there rows that read a key through an offset that is twice in their head are NaN, and one above 0 in a causal call
/// or beyond 2^61 reads nothing and has gradient 0. Cost: O(B (Tq + Tk) d) as aft::simple, O(B Tq d) for each tap, and
/// scratch that does not grow with T. A row whose taps, by values below 0, take away more than a quarter of the mass
/// that it sees costs O(Tk); without options.causal there are fewer of those than 4 taps a channel. So do rows with a
/// value above 40 (500 for double data), all rows of heads with several values of -inf, of calls with a mask for each
/// pair, and of channels with keys above 4096 in size.
template <operator_executor E, class Q, class K, class V, class Filter, detail::operand Y>
void conv(const E& exec, const Q& q, const K& k, const V& v, const Filter& filter, const Y& y,
          const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (checks::check_filter<detail::arg::filter, E, T, Filter>()) {
    constexpr checks::rank_span ranks = checks::ranks_with_filter<Filter, V>();
    if constexpr (detail::fits<checks::find_inputs<E, ranks.low, ranks.high, Q, K, V>()>()) {
      if constexpr (detail::fits<detail::find_output<detail::arg::y, E, T, ranks.low, ranks.high, Y>()>()) {
        checks::call c = checks::make_call<E>("aft::conv", q, k, v, opt);
        c.cross_lengths = checks::lengths_may_differ<Filter, V>();
        checks::set_output(c, y);
        checks::set_filter<compute_t<T>>(c, filter);
        constexpr family asked = is_sparse_filter<Filter> ? family::sparse : family::conv;
        run_forward<compute_t<T>, asked>(checks::prepare(c, exec), exec);
      }
    }
  }
}

/// aft::conv on the executor that works on the views' memory: aft::cpu{} for host views.
template <detail::not_executor Q, class K, class V, class Filter, detail::operand Y>
void conv(const Q& q, const K& k, const V& v, const Filter& filter, const Y& y, const options& opt = default_options) {
  conv(typename detail::executor_for<V>::type{}, q, k, v, filter, y, opt);
}

/// Gradients of aft::conv, with the meaning and the rules of aft::full_backward; dfilter has the shape of filter, and
/// a tap that reaches no key anywhere has gradient 0.
///
/// For an aft::sparse_filter{taps, values} dfilter is a view of the shape of values, (H, m), or an aft::sparse_filter
/// of such a view, whose taps are not read. Where values have a stride of 0 over heads or over taps, its extent there
/// may be 1, and it is then the sum. On aft::cpu these gradients are those of the dense filter that the sparse
/// one is short for: cost and scratch are a call's with the smallest filter, as wide to either side, that holds all
/// taps. On aft::cuda they cost what conv does, of the rows and, transposed, of the keys; scratch is O(B (Tq + Tk) d).
template <operator_executor E, class Q, class K, class V, class Filter, class DY, class DQ, class DK, class DV,
          detail::operand DFilter>
void conv_backward(const E& exec, const Q& q, const K& k, const V& v, const Filter& filter, const DY& dy, const DQ& dq,
                   const DK& dk, const DV& dv, const DFilter& dfilter, const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  constexpr bool same_rank = checks::filter_gradient_has_rank<Filter, DFilter>();
  static_assert(same_rank,
                "aft::conv_backward: dfilter must have the rank of filter, for a sparse one 2 as its values");
  if constexpr (checks::check_filter<detail::arg::filter, E, T, Filter>()) {
    constexpr checks::rank_span ranks = checks::ranks_with_filter<Filter, V>();
    if constexpr (detail::fits<checks::find_inputs<E, ranks.low, ranks.high, Q, K, V>()>()) {
      if constexpr (detail::fits<checks::find_gradients<E, ranks.low, ranks.high, T, DY, DQ, DK, DV>()>()) {
        if constexpr (checks::check_filter_gradient<E, T, Filter, DFilter>()) {
          checks::call c = checks::make_call<E>("aft::conv_backward", q, k, v, opt);
          c.cross_lengths = checks::lengths_may_differ<Filter, V>();
          checks::set_filter<compute_t<T>>(c, filter);
          checks::set_gradients(c, dy, dq, dk, dv);
          checks::set_bias<compute_t<T>>(c.dbias, checks::written_values(dfilter));
          constexpr family asked = is_sparse_filter<Filter> ? family::sparse : family::conv;
          if constexpr (asked == family::sparse && !detail::is_no_grad<DFilter>) c.dbias.kind = bias_kind::sparse;
          run_backward<compute_t<T>, asked>(checks::prepare(c, exec), exec);
        }
      }
    }
  }
}

/// aft::conv_backward on the executor that works on the views' memory.
template <detail::not_executor Q, class K, class V, class Filter, class DY, class DQ, class DK, class DV,
          detail::operand DFilter>
void conv_backward(const Q& q, const K& k, const V& v, const Filter& filter, const DY& dy, const DQ& dq, const DK& dk,
                   const DV& dv, const DFilter& dfilter, const options& opt = default_options) {
  conv_backward(typename detail::executor_for<V>::type{}, q, k, v, filter, dy, dq, dk, dv, dfilter, opt);
}

}  // namespace AFT_ISA
}  // namespace aft
