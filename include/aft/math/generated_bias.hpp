// SPDX-License-Identifier: Apache-2.0
/// @file generated_bias.hpp  A position bias w[t,s] that a function gives row by row, and where its gradient goes.
#pragma once

#include <aft/core/numeric.hpp>

#include <concepts>
#include <span>
#include <utility>

namespace aft {

/// Says that a generated bias differs from one batch element to the next.
struct per_batch_t {
  explicit per_batch_t() = default;
};
/// Its value: `aft::generated_bias{H, f, aft::per_batch}`.
inline constexpr per_batch_t per_batch{};

/// A bias that no one stores (AFT Eq. 2, inside a window Eq. 4): `void f(index_t b, index_t h, index_t t, index_t s0,
/// std::span<C> row) const noexcept` writes row[i] = w[t, s0 + i] for all of `row`, where C is float, or double for
/// double data. For aft::full, aft::local and aft::attention_map on the CPU.
///
/// H heads serve d channels, which H divides: channel c uses head c / (d/H). t and s are positions: row t of the call
/// has options.first_query + t, so that w has the same values when the last rows of a sequence are asked for alone. b
/// is 0 unless the bias is `per_batch`. f is only asked for pairs inside the tensors, the window and causal order; what
/// it says of pairs that a mask or a length hides is ignored, NaN too. It is pure (the same arguments give the same
/// bits), as it is asked in pieces of any length, by several threads at once, and possibly again: for every pair once
/// in a forward call and three times in a backward call (four where logits are beyond what a power of two and a float
/// can hold), or for each batch element so often. It runs in the default floating-point environment and must not throw.
template <class F>
struct generated_bias {
  index_t heads;         ///< H
  F f;                   ///< Asked through a const reference; lives as long as the call.
  bool batched = false;  ///< f depends on b.

  /// The same bias for every batch element: f is asked with b = 0.
  template <std::integral N>
  [[gnu::always_inline]] constexpr generated_bias(N H, F function)
      : heads(static_cast<index_t>(H)), f(std::move(function)) {}
  /// One for each batch element.
  template <std::integral N>
  [[gnu::always_inline]] constexpr generated_bias(N H, F function, per_batch_t)
      : heads(static_cast<index_t>(H)), f(std::move(function)), batched(true) {}
};

/// The gradient of a generated bias, as dbias of a backward call: `void f(index_t part, index_t b, index_t h, index_t
/// t, index_t s0, std::span<const C> dw) const noexcept` takes dw[i] = dL/dw[t, s0 + i].
///
/// It gets every pair inside the window once, hidden ones with 0, summed over the batch (b is 0) unless the bias is
/// per_batch. t and s are positions as for the bias. Calls of different parts may come at the same time, those of one
/// part come one after the other, in the order of b, h, t, s. Row t of the call, counted through batch and heads,
/// belongs to part ((b H + h) Tq + t) mod parts, whatever the number of threads: what is collected into one table for
/// each part, and added up in the order of parts, has the same bits in every run.
///
/// Over packed sequences a bias for each has b = n and the rows of sequence n, which are counted through all sequences:
/// row t belongs to part (H o[n] + h T + t) mod parts, where T is the sequence's length and o[n] its offset. Of a bias
/// for all, every pair of the longest sequence's queries and keys comes once, summed over the sequences that have it.
template <class F>
struct generated_bias_gradient {
  F f;            ///< Called through a const reference; lives as long as the call.
  index_t parts;  ///< 1 to 64

  /// Rows are dealt to so many parts.
  template <std::integral N>
  [[gnu::always_inline]] constexpr generated_bias_gradient(F function, N count)
      : f(std::move(function)), parts(static_cast<index_t>(count)) {}
};

/// @cond
template <class B>
inline constexpr bool is_generated_bias = false;
template <class F>
inline constexpr bool is_generated_bias<generated_bias<F>> = true;
template <class B>
inline constexpr bool is_generated_bias_gradient = false;
template <class F>
inline constexpr bool is_generated_bias_gradient<generated_bias_gradient<F>> = true;
/// @endcond

}  // namespace aft
