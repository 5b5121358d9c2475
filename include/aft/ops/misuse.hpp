// SPDX-License-Identifier: Apache-2.0
/// @file misuse.hpp  Calls that fit no operator: what is wrong with them, in one line instead of a list of candidates.
///
/// Every function here takes whatever no other of its name takes, and does not compile. A call that fits never chooses
/// one: a template with a parameter for each argument is preferred to one with a pack.
#pragma once

#include "attention_map.hpp"
#include "conv.hpp"
#include "filter_entropy.hpp"
#include "full.hpp"
#include "gumbel_filter.hpp"
#include "local.hpp"
#include "reparameterize.hpp"
#include "simple.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace misuse {

template <class A>
inline constexpr bool is_bias = is_dense_bias<A> || is_factorized_bias<A> || is_banded_bias<A> || is_generated_bias<A>;
template <class A>
inline constexpr bool is_extra = operator_executor<A> || std::is_same_v<A, options>;

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

/// Executor first, options last.
template <class... A>
constexpr bool misplaced() {
  constexpr bool is_options[] = {std::is_same_v<A, options>..., false}, is_exec[] = {operator_executor<A>..., false};
  bool early = false, late = false;
  for (std::size_t i = 0; i + 1 < sizeof...(A); ++i) {
    early = early || is_options[i];
    late = late || is_exec[i + 1];
  }
  return early || late;
}
/// The mistakes that operators share; one message each, the likeliest first.
template <bool WithBias, bool WithWindow, std::size_t Wanted, class... A>
constexpr bool named() {
  constexpr bool elsewhere = misplaced<A...>();
  static_assert(!elsewhere, "aft: the executor is the first argument and the options are the last");
  constexpr bool number = !elsewhere && WithWindow && has_number<A...>;
  constexpr bool no_window = !elsewhere && WithWindow && !number && windows<A...> == 0;
  constexpr bool too_many_windows = !elsewhere && !WithWindow && windows < A... >> 0;
  constexpr bool swapped = !elsewhere && WithWindow && windows<A...> == 1 && biases < A... >> 0 && window_first<A...>();
  constexpr bool no_bias =
      !elsewhere && !too_many_windows && WithBias && !number && biases<A...> == 0 && count<A...> < Wanted;
  static_assert(!number,
                "aft: a number where a window belongs: write aft::window::strict(s), aft::window::inclusive(s) or "
                "aft::window{.before = m, .after = n}");
  static_assert(number || no_bias || !no_window,
                "aft: the window is missing: after the bias comes aft::window::strict(s), aft::window::inclusive(s) or "
                "aft::window{.before = m, .after = n}");
  static_assert(!too_many_windows, "aft: this operator has no window: use aft::local, or leave the window out");
  static_assert(!swapped, "aft: the window comes after the bias: (q, k, v, bias, window, ...)");
  static_assert(number || !no_bias,
                "aft: the bias is missing: after v comes aft::dense_bias{w}, aft::factorized_bias{u, v} or, for "
                "aft::local, aft::banded_bias{w}; without a bias use aft::simple");
  return elsewhere || number || no_window || too_many_windows || swapped || no_bias;
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
  constexpr bool no_bias_belongs_here = misuse::biases<A...> == 0;
  static_assert(no_bias_belongs_here, "aft::simple has no bias: use aft::full or aft::local, or leave the bias out");
  if constexpr (no_bias_belongs_here && !misuse::named<false, false, 4, A...>())
    static_assert(misuse::never<A...>, "aft::simple takes ([executor,] q, k, v, y [, options])");
}
template <class... A>
void conv(const A&...) {
  constexpr bool no_filter = misuse::count<A...> == 4;
  static_assert(!no_filter,
                "aft::conv: the filter is missing: after v comes a view (H, taps), (H, kh, kw) or "
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
  if constexpr (!misuse::named<false, false, 7, A...>())
    static_assert(
        misuse::never<A...>,
        "aft::simple_backward takes ([executor,] q, k, v, dy, dq, dk, dv [, options]); a gradient that is not "
        "wanted is aft::no_grad");
}
template <class... A>
void conv_backward(const A&...) {
  if constexpr (!misuse::named<false, false, 9, A...>())
    static_assert(misuse::never<A...>,
                  "aft::conv_backward takes ([executor,] q, k, v, filter, dy, dq, dk, dv, dfilter [, options]); a "
                  "gradient that is not wanted is aft::no_grad");
}

template <class... A>
void attention_map(const A&...) {
  constexpr bool elsewhere = misuse::misplaced<A...>();
  static_assert(!elsewhere, "aft: the executor is the first argument and the options are the last");
  if constexpr (!elsewhere)
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
template <class... A>
void filter_entropy(const A&...) {
  static_assert(misuse::never<A...>, "aft::filter_entropy takes ([executor,] r, out)");
}
template <class... A>
void filter_entropy_backward(const A&...) {
  static_assert(misuse::never<A...>, "aft::filter_entropy_backward takes ([executor,] r, dout, dr)");
}
template <class... A>
void gumbel_filter(const A&...) {
  static_assert(misuse::never<A...>,
                "aft::gumbel_filter takes ([executor,] r, noise, tau, out), with a number tau; without noise it is "
                "aft::gumbel_filter_hard");
}
template <class... A>
void gumbel_filter_backward(const A&...) {
  static_assert(misuse::never<A...>, "aft::gumbel_filter_backward takes ([executor,] r, noise, tau, dout, dr)");
}
template <class... A>
void gumbel_filter_hard(const A&...) {
  static_assert(misuse::never<A...>, "aft::gumbel_filter_hard takes ([executor,] r, out)");
}

// Options in braces have no type that a pack could take: these are for calls with options to which one argument is
// missing, and for the wrong name that people bring along from PyTorch.

namespace misuse {

/// Converts from anything; a member of this type has to be given, or, with a default, need not.
struct anything {
  template <class X>
  constexpr anything(const X&) {}
};
/// Nothing converts to it, so that neither {} nor {true} is taken for what follows it.
class sealed {
 public:
  static constexpr sealed make() { return sealed(); }

 private:
  constexpr sealed() = default;
};

/// Options with is_causal, and possibly more, in the order of aft::options.
struct foreign_options {
  sealed first = sealed::make();
  anything is_causal;
  anything gate_fn = 0, outside = 0, mask = 0, key_lengths = 0, lse = 0, average = 0, query_lengths = 0,
           first_query = 0, arithmetic = 0;
};

template <class... A>
constexpr void foreign_name(const A&...) {
  constexpr bool options_have_this_member = sizeof...(A) == 0;
  static_assert(options_have_this_member, "aft::options has no member is_causal: it is called causal");
}

}  // namespace misuse

void full(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const options&) {
  full(a1, a2, a3, a4);
}
void full(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4, const options&) {
  full(exec, a1, a2, a3, a4);
}
void full(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5,
          const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5);
}
void full(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
          const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6);
}
void local(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const options&) {
  local(a1, a2, a3, a4, a5);
}
void local(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5,
           const options&) {
  local(exec, a1, a2, a3, a4, a5);
}
void local(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
           const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6);
}
void local(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
           const auto& a7, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7);
}
void simple(const auto& a1, const auto& a2, const auto& a3, const options&) {
  simple(a1, a2, a3);
}
void simple(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const options&) {
  simple(exec, a1, a2, a3);
}
void simple(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4);
}
void simple(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5,
            const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5);
}
void conv(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const options&) {
  conv(a1, a2, a3, a4);
}
void conv(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4, const options&) {
  conv(exec, a1, a2, a3, a4);
}
void conv(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5,
          const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5);
}
void conv(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
          const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6);
}
void full_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const options&) {
  full_backward(a1, a2, a3, a4, a5, a6, a7, a8);
}
void full_backward(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4,
                   const auto& a5, const auto& a6, const auto& a7, const auto& a8, const options&) {
  full_backward(exec, a1, a2, a3, a4, a5, a6, a7, a8);
}
void full_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const auto& a9, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9);
}
void full_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const auto& a9, const auto& a10, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10);
}
void local_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                    const auto& a7, const auto& a8, const auto& a9, const options&) {
  local_backward(a1, a2, a3, a4, a5, a6, a7, a8, a9);
}
void local_backward(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4,
                    const auto& a5, const auto& a6, const auto& a7, const auto& a8, const auto& a9, const options&) {
  local_backward(exec, a1, a2, a3, a4, a5, a6, a7, a8, a9);
}
void local_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                    const auto& a7, const auto& a8, const auto& a9, const auto& a10, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10);
}
void local_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                    const auto& a7, const auto& a8, const auto& a9, const auto& a10, const auto& a11,
                    const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11);
}
void simple_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                     const options&) {
  simple_backward(a1, a2, a3, a4, a5, a6);
}
void simple_backward(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4,
                     const auto& a5, const auto& a6, const options&) {
  simple_backward(exec, a1, a2, a3, a4, a5, a6);
}
void simple_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                     const auto& a7, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7);
}
void simple_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                     const auto& a7, const auto& a8, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8);
}
void conv_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const options&) {
  conv_backward(a1, a2, a3, a4, a5, a6, a7, a8);
}
void conv_backward(const executor auto& exec, const auto& a1, const auto& a2, const auto& a3, const auto& a4,
                   const auto& a5, const auto& a6, const auto& a7, const auto& a8, const options&) {
  conv_backward(exec, a1, a2, a3, a4, a5, a6, a7, a8);
}
void conv_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const auto& a9, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9);
}
void conv_backward(const auto& a1, const auto& a2, const auto& a3, const auto& a4, const auto& a5, const auto& a6,
                   const auto& a7, const auto& a8, const auto& a9, const auto& a10, const misuse::foreign_options&) {
  misuse::foreign_name(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10);
}

}  // namespace AFT_ISA
}  // namespace aft
