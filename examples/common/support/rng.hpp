// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same with every standard library (std::normal_distribution is not).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace examples {

/// SplitMix64: the state is a counter, so a stream is named by a few integers. Training draws each
/// step's batch from the stream (seed, purpose, step) and therefore has no generator state to save:
/// seed and step are the state.
class random_stream {
 public:
  random_stream(std::uint64_t seed, std::uint64_t purpose, std::uint64_t index = 0)
      : state_(mix(mix(mix(seed) ^ purpose) ^ index)) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    return mix(state_);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// In [0, n). The bias of the product method is below n / 2^53: nothing for a text's length.
  std::uint64_t below(std::uint64_t n) { return static_cast<std::uint64_t>(uniform() * static_cast<double>(n)); }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

/// Purposes, so that no two uses share a stream.
namespace purpose {
inline constexpr std::uint64_t batch = 1;
inline constexpr std::uint64_t sample = 2;
inline constexpr std::uint64_t noise = 3;       // of a step's filters
inline constexpr std::uint64_t initial = 1000;  // + the parameter's place in the model
}  // namespace purpose

}  // namespace examples
