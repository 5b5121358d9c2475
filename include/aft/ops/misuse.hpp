// SPDX-License-Identifier: Apache-2.0
/// @file misuse.hpp  Calls that fit no operator: what is wrong with them, in one line instead of a list of candidates.
///
/// Every function here takes whatever no other of its name takes, and does not compile. A call that fits never chooses
/// one: a template with a parameter for each argument is preferred to one with a pack.
#pragma once

#include "attention_map.hpp"
#include "conv.hpp"
#include "full.hpp"
#include "local.hpp"
#include "reparameterize.hpp"
#include "simple.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace misuse {

template <class A>
inline constexpr bool is_bias = is_dense_bias<A> || is_factorized_bias<A> || is_banded_bias<A>;
template <class A>
inline constexpr bool is_extra = executor<A> || std::is_same_v<A, options>;

/// How many of the arguments are neither an executor nor options.
template <class... A>
inline constexpr std::size_t count = (std::size_t{0} + ... + (is_extra<A> ? 0u : 1u));
template <class... A>
inline constexpr std::size_t biases = (std::size_t{0} + ... + (is_bias<A> ? 1u : 0u));
template <class... A>
inline constexpr std::size_t windows = (std::size_t{0} + ... + (std::is_same_v<A, window> ? 1u : 0u));
template <class... A>
inline constexpr bool has_number = (false || ... || std::is_arithmetic_v<A>);

/// Whether the first window comes before the first bias.
template <class... A>
constexpr bool window_first() {
  constexpr bool window_at[] = {std::is_same_v<A, window>..., true}, bias_at[] = {is_bias<A>..., true};
  std::size_t i = 0;
  while (!window_at[i] && !bias_at[i]) ++i;
  return window_at[i] && i < sizeof...(A);
}

/// The mistakes that operators share; one message each, the likeliest first.
template <bool WithBias, bool WithWindow, std::size_t Wanted, class... A>
constexpr bool named() {
  constexpr bool number = WithWindow && has_number<A...>;
  constexpr bool no_window = WithWindow && !number && windows<A...> == 0;
  constexpr bool swapped = WithWindow && windows<A...> == 1 && biases<A...> > 0 && window_first<A...>();
  constexpr bool no_bias = WithBias && !number && biases<A...> == 0 && count<A...> < Wanted;
  static_assert(!number,
                "aft: a number where a window belongs: write aft::window::strict(s), aft::window::inclusive(s) or "
                "aft::window{.before = m, .after = n}");
  static_assert(number || no_bias || !no_window,
                "aft: the window is missing: after the bias comes aft::window::strict(s), aft::window::inclusive(s) or "
                "aft::window{.before = m, .after = n}");
  static_assert(!swapped, "aft: the window comes after the bias: (q, k, v, bias, window, ...)");
  static_assert(number || !no_bias,
                "aft: the bias is missing: after v comes aft::dense_bias{w}, aft::factorized_bias{u, v} or, for "
                "aft::local, aft::banded_bias{w}; without a bias use aft::simple");
  return number || no_window || swapped || no_bias;
}

template <class...>
inline constexpr bool never = false;

}  // namespace misuse

template <class... A>
void full(const A&...) {
  if constexpr (!misuse::named<true, false, 5, A...>())
    static_assert(misuse::never<A...>, "aft::full takes ([executor,] q, k, v, bias, y [, options])");
}
template <class... A>
void local(const A&...) {
  if constexpr (!misuse::named<true, true, 6, A...>())
    static_assert(misuse::never<A...>, "aft::local takes ([executor,] q, k, v, bias, window, y [, options])");
}
template <class... A>
void simple(const A&...) {
  static_assert(misuse::never<A...>, "aft::simple takes ([executor,] q, k, v, y [, options])");
}
template <class... A>
void conv(const A&...) {
  constexpr bool no_filter = misuse::count<A...> == 4;
  static_assert(!no_filter, "aft::conv: the filter is missing: after v comes a view (H, taps), (H, kh, kw) or "
                            "(H, kd, kh, kw)");
  static_assert(no_filter || misuse::never<A...>, "aft::conv takes ([executor,] q, k, v, filter, y [, options])");
}

template <class... A>
void full_backward(const A&...) {
  if constexpr (!misuse::named<true, false, 9, A...>())
    static_assert(misuse::never<A...>,
                  "aft::full_backward takes ([executor,] q, k, v, bias, dy, dq, dk, dv, dbias [, options]); a gradient "
                  "that is not wanted is aft::no_grad");
}
template <class... A>
void local_backward(const A&...) {
  if constexpr (!misuse::named<true, true, 10, A...>())
    static_assert(misuse::never<A...>,
                  "aft::local_backward takes ([executor,] q, k, v, bias, window, dy, dq, dk, dv, dbias [, options]); a "
                  "gradient that is not wanted is aft::no_grad");
}
template <class... A>
void simple_backward(const A&...) {
  static_assert(misuse::never<A...>,
                "aft::simple_backward takes ([executor,] q, k, v, dy, dq, dk, dv [, options]); a gradient that is not "
                "wanted is aft::no_grad");
}
template <class... A>
void conv_backward(const A&...) {
  static_assert(misuse::never<A...>,
                "aft::conv_backward takes ([executor,] q, k, v, filter, dy, dq, dk, dv, dfilter [, options]); a "
                "gradient that is not wanted is aft::no_grad");
}

template <class... A>
void attention_map(const A&...) {
  static_assert(misuse::never<A...>,
                "aft::attention_map takes ([executor,] k, bias or filter, [window,] out [, options])");
}
template <class... A>
void reparameterize(const A&...) {
  static_assert(misuse::never<A...>, "aft::reparameterize takes ([executor,] r, gain, shift, out)");
}
template <class... A>
void reparameterize_backward(const A&...) {
  static_assert(misuse::never<A...>,
                "aft::reparameterize_backward takes ([executor,] r, gain, shift, dout, dr, dgain, dshift); a gradient "
                "that is not wanted is aft::no_grad");
}

}  // namespace AFT_ISA
}  // namespace aft
