// SPDX-License-Identifier: Apache-2.0
/// @file options.hpp  What every operator can be told beyond its tensors.
#pragma once

#include <cstdint>

#include "any_view.hpp"

namespace aft {

/// The function of q that multiplies the average (AFT Eq. 2 has the sigmoid). `none` does not read q at all;
/// `identity` is y = q * average.
enum class gate : std::uint8_t { none, identity, sigmoid, relu, tanh, silu };

/// What pairs outside a window mean: bias 0, the papers' global connectivity, or not seen at all (their ablation).
enum class outside : std::uint8_t { zero_bias, excluded };

/// One plain aggregate for all operators: `aft::options{.causal = true, .lse = lse}`.
struct options {
  /// Key s is visible to query t iff s <= t.
  bool causal = false;
  gate gate_fn = gate::sigmoid;
  aft::outside outside = outside::zero_bias;
  /// (B|1, Tq|1, Tk) of uint8: 0 hides the pair.
  any_view mask{};
  /// (B) of int64: keys s >= length are hidden. Values below 0 count as 0, above Tk as Tk.
  any_view key_lengths{};
  /// Output (B, Tq, hk), float (double for double data): log sum_s exp(k + w), -inf where a row sees no key.
  /// Needs the number of heads of a bias to divide hk, else a key channel would have several. Backward calls read it:
  /// half a unit of it, as it was rounded, is then a relative error of every weight, in float 4e-7 where it is about
  /// 10, 4e-6 about 100, 3e-5 about 1000. Backward calls that are not given it have no such error.
  any_view lse{};
  /// Output (B, Tq, d), the data's type or float (double for double data): the average before the gate.
  /// Backward calls read it.
  any_view average{};
};

}  // namespace aft
