// SPDX-License-Identifier: Apache-2.0
#include "scalars.hpp"

#include <aft/core/numeric.hpp>

namespace aft::ptx {

namespace {

constexpr float least_normal = std::numeric_limits<float>::min();

/// From -1 to 1, of the bits of x: the same for the same x, as a device is.
double direction(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44du;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

bool ordinary(double x) {
  return std::isfinite(x) && x != 0;
}

}  // namespace

std::uint16_t to_half(float x) {
  return std::isnan(x) ? std::uint16_t{0x7fff} : aft::detail::float_to_half_bits(x);
}
float from_half(std::uint16_t x) {
  return static_cast<float>(aft::half::from_bits(x));
}
std::uint16_t to_bfloat16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const auto all = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16);
}
std::uint32_t to_tf32(float x) {
  const auto all = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return 0x7fffffffu;
  return std::isinf(x) ? all : (all + 0x1000) & ~std::uint32_t{0x1fff};
}

float quotient_approx(float a, float b) {
  const float size = std::fabs(b);
  if (size > 0x1p126f && std::isfinite(b)) return std::isinf(a) ? std::numeric_limits<float>::quiet_NaN() : 0.0f * a;
  const float right = a / b;
  if (!ordinary(right) || size < least_normal || std::fabs(right) < least_normal) return right;
  // Two units are at least 2^-23 of the result, and this rounds once more.
  const std::uint64_t both = std::uint64_t{std::bit_cast<std::uint32_t>(a)} << 32 | std::bit_cast<std::uint32_t>(b);
  return static_cast<float>(static_cast<double>(a) / static_cast<double>(b) * (1 + 0x1p-23 * direction(both)));
}

float exp2_approx(float x) {
  const double right = std::exp2(static_cast<double>(x));
  // Both zeros give 1 exactly.
  if (!ordinary(right) || x == 0) return static_cast<float>(right);
  return static_cast<float>(right * (1 + 0x1.8p-23 * direction(std::bit_cast<std::uint32_t>(x))));
}

float log2_approx(float x) {
  const double right = std::log2(static_cast<double>(x));
  if (!std::isfinite(right)) return static_cast<float>(right);
  const double scale = x >= 0.5f && x <= 2 ? 1 : std::fabs(right);
  return static_cast<float>(right + scale * 0x1.8p-23 * direction(std::bit_cast<std::uint32_t>(x)));
}

double reciprocal_approx(double x) {
  const double right = 1 / x;
  if (!ordinary(right)) return right;
  if (std::fabs(x) < std::numeric_limits<double>::min()) return std::copysign(HUGE_VAL, x);
  if (std::fabs(right) < std::numeric_limits<double>::min()) return std::copysign(0.0, x);
  // What the device looks at and gives are the upper halves of numbers: 20 bits behind the point.
  constexpr std::uint64_t upper = 0xffffffff00000000u, half = 0x80000000u;
  const double seen = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & upper);
  const double off = 1 / seen * (1 + 0x1p-22 * direction(std::bit_cast<std::uint64_t>(x)));
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(off) + half) & upper);
}

}  // namespace aft::ptx
