// SPDX-License-Identifier: Apache-2.0
// Whole vectors of half and bfloat16 are what their numbers are one by one.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <aft/cpu/simd/conversions.hpp>

using aft::cpu_impl::lanes;
using aft::cpu_impl::vec;

namespace {

/// The same bits, or NaN both.
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

TEST_CASE_TEMPLATE("storage: every number of 16 bits is read as what it is", T, aft::half, aft::bfloat16) {
  constexpr std::size_t L = lanes<float>;
  T from[L];
  float to[L];
  for (std::uint32_t first = 0; first < 0x10000; first += L) {
    for (std::size_t l = 0; l < L; ++l) from[l] = T::from_bits(static_cast<std::uint16_t>(first + l));
    aft::cpu_impl::store(to, aft::cpu_impl::load_as<float>(from));
    for (std::size_t l = 0; l < L; ++l) {
      CAPTURE(first + l);
      REQUIRE(same(to[l], static_cast<float>(from[l])));
    }
  }
}

TEST_CASE_TEMPLATE("storage: floats are rounded to 16 bits as one by one", T, aft::half, aft::bfloat16) {
  // Upper halves of all floats; lower ones at and beside every place where a tie may lie.
  std::vector<std::uint32_t> lower{0, 1};
  for (std::uint32_t bit = 2; bit < 0x10000; bit *= 2) lower.insert(lower.end(), {bit - 1, bit, bit + 1});
  lower.push_back(0xffff);
  constexpr std::size_t L = lanes<float>;
  float from[L];
  T to[L], numbers[L];
  for (const std::uint32_t low : lower) {
    for (std::uint32_t first = 0; first < 0x10000; first += L) {
      for (std::uint32_t l = 0; l < L; ++l) from[l] = std::bit_cast<float>((first + l) << 16 | low);
      aft::cpu_impl::store_as<float>(to, aft::cpu_impl::load(from));
      aft::cpu_impl::store_numbers_as<float>(numbers, aft::cpu_impl::load(from));
      for (std::size_t l = 0; l < L; ++l) {
        const float expected = static_cast<float>(T(from[l]));
        // Of other NaNs store_numbers_as may make anything.
        const bool promised = low == 0 || !std::isnan(from[l]);
        if (same(static_cast<float>(to[l]), expected) && (!promised || same(static_cast<float>(numbers[l]), expected)))
          continue;
        CAPTURE(low);
        CAPTURE(first + l);
        FAIL("rounded otherwise");
      }
    }
  }
}
