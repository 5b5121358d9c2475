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

template <detail::arg Argument, class E, class T, class Filter>
constexpr bool check_filter() {
  if constexpr (detail::check_bias_tensor<Argument, E, T, Filter>()) {
    constexpr bool rank_fits = Filter::rank() >= 2 && Filter::rank() <= 4;
    static_assert(rank_fits, "aft::conv: filter has rank 2 (H, taps), 3 (H, kh, kw) or 4 (H, kd, kh, kw)");
    return rank_fits;
  } else {
    return false;
  }
}

template <class E, class T, class Filter, class DFilter>
constexpr bool check_filter_gradient() {
  if constexpr (detail::is_no_grad<DFilter>) {
    return true;
  } else if constexpr (check_filter<detail::arg::dfilter, E, T, DFilter>()) {
    constexpr bool same_rank = DFilter::rank() == Filter::rank();
    static_assert(same_rank, "aft::conv_backward: dfilter must have the rank of filter");
    if constexpr (same_rank) {
      return detail::check_mutable<DFilter>();
    } else {
      return false;
    }
  } else {
    return false;
  }
}

/// Lowest rank of q, k, v, y that goes with a filter: a sequence may leave out the batch, a grid may not, because
/// (H, W, d) would read as (B, T, d).
template <class Filter>
inline constexpr std::size_t lowest_rank = Filter::rank() == 2 ? 2 : Filter::rank() + 1;

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
template <operator_executor E, class Q, class K, class V, class Filter, detail::operand Y>
void conv(const E& exec, const Q& q, const K& k, const V& v, const Filter& filter, const Y& y,
          const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (checks::check_filter<detail::arg::filter, E, T, Filter>()) {
    constexpr std::size_t low = checks::lowest_rank<Filter>;
    constexpr std::size_t high = Filter::rank() + 1;
    if constexpr (detail::fits<checks::find_inputs<E, low, high, Q, K, V>()>()) {
      if constexpr (detail::fits<detail::find_output<detail::arg::y, E, T, low, high, Y>()>()) {
        checks::call c = checks::make_call<E>("aft::conv", q, k, v, opt);
        c.cross_lengths = Filter::rank() == 2;
        checks::set_output(c, y);
        checks::set_bias<compute_t<T>>(c.bias, filter);
        run_forward<compute_t<T>, family::conv>(checks::prepare(c, exec), exec);
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
template <operator_executor E, class Q, class K, class V, class Filter, class DY, class DQ, class DK, class DV,
          detail::operand DFilter>
void conv_backward(const E& exec, const Q& q, const K& k, const V& v, const Filter& filter, const DY& dy, const DQ& dq,
                   const DK& dk, const DV& dv, const DFilter& dfilter, const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (checks::check_filter<detail::arg::filter, E, T, Filter>()) {
    constexpr std::size_t low = checks::lowest_rank<Filter>;
    constexpr std::size_t high = Filter::rank() + 1;
    if constexpr (detail::fits<checks::find_inputs<E, low, high, Q, K, V>()>()) {
      if constexpr (detail::fits<checks::find_gradients<E, low, high, T, DY, DQ, DK, DV>()>()) {
        if constexpr (checks::check_filter_gradient<E, T, Filter, DFilter>()) {
          checks::call c = checks::make_call<E>("aft::conv_backward", q, k, v, opt);
          c.cross_lengths = Filter::rank() == 2;
          checks::set_bias<compute_t<T>>(c.bias, filter);
          checks::set_gradients(c, dy, dq, dk, dv);
          checks::set_bias<compute_t<T>>(c.dbias, dfilter);
          run_backward<compute_t<T>, family::conv>(checks::prepare(c, exec), exec);
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
