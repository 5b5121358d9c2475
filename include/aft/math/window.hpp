// SPDX-License-Identifier: Apache-2.0
/// @file window.hpp  The interval of keys around a query in which a bias applies.
#pragma once

#include <aft/core/config.hpp>

namespace aft {

/// Keys t - before <= s <= t + after. An empty window (no key at all) is before + after + 1 == 0.
struct window {
  index_t before = 0;  ///< Keys before the query; negative for a window that begins after it.
  index_t after = 0;   ///< Keys after the query; negative for a window that ends before it.

  /// |t - s'| < s (AFT Eq. 4 and the labml code). strict(0) holds no key, which makes `local` AFT-simple.
  [[gnu::always_inline]] static constexpr window strict(index_t s) { return {s - 1, s > 0 ? s - 1 : 0}; }
  /// |t - s'| <= s (DAFT Eq. 7).
  [[gnu::always_inline]] static constexpr window inclusive(index_t s) { return {s, s}; }

  /// The number of keys inside, away from the ends of the sequence.
  [[gnu::always_inline]] constexpr index_t width() const { return before + after + 1; }
};

}  // namespace aft
