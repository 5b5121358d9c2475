// SPDX-License-Identifier: Apache-2.0
#include "tensor_cores.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "launch.hpp"
#include "scalars.hpp"

namespace aft::ptx {

namespace {

/// x 2^shift towards 0.
std::int64_t moved(std::int64_t x, int shift) {
  if (shift >= 0) return shift < 62 ? x << shift : 0;
  if (shift <= -63) return 0;
  return x < 0 ? -(-x >> -shift) : x >> -shift;
}

/// x 2^exponent as a float, towards 0.
float cut(std::int64_t x, int exponent) {
  if (x == 0) return 0;
  const bool negative = x < 0;
  auto size = static_cast<std::uint64_t>(negative ? -x : x);
  int beyond = static_cast<int>(std::bit_width(size)) - 24;
  if (exponent + beyond < -149) beyond = -149 - exponent;
  if (beyond > 0) {
    size = beyond < 64 ? size >> beyond : 0;
    exponent += beyond;
  }
  const double value = std::ldexp(static_cast<double>(size), exponent);
  // Beyond the largest float a sum that is cut is still infinite.
  const float result = value >= 0x1p128 ? std::numeric_limits<float>::infinity() : static_cast<float>(value);
  return negative ? -result : result;
}

float add_block(const adder& how, const factor* a, const factor* b, int count, float c) {
  const factor start(c);
  bool special = !std::isfinite(c);
  int largest = start.significand != 0 ? start.exponent : std::numeric_limits<int>::min();
  for (int k = 0; k < count; ++k) {
    special = special || !std::isfinite(a[k].value) || !std::isfinite(b[k].value);
    if (a[k].significand != 0 && b[k].significand != 0) largest = std::max(largest, a[k].exponent + b[k].exponent);
  }
  if (special || largest == std::numeric_limits<int>::min()) {
    // In double, where finite products stay finite; of zeros the sum has the sign that any addition gives it.
    double sum = c;
    for (int k = 0; k < count; ++k) sum += static_cast<double>(a[k].value) * static_cast<double>(b[k].value);
    return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(sum);
  }
  const int unit = largest - how.bits;
  std::int64_t sum = moved(start.significand, start.exponent - 23 - unit);
  for (int k = 0; k < count; ++k) {
    const int shift = a[k].exponent + b[k].exponent - 46 - unit;
    sum += moved(std::int64_t{a[k].significand} * b[k].significand, shift);
  }
  return cut(sum, unit);
}

float number(operand_kind kind, std::uint32_t word, int i) {
  switch (kind) {
    // The last 13 bits are not looked at.
    case operand_kind::tf32: return std::bit_cast<float>(word & ~std::uint32_t{0x1fff});
    case operand_kind::half: return from_half(static_cast<std::uint16_t>(word >> 16 * i));
    default: return std::bit_cast<float>((word >> 16 * i & 0xffff) << 16);
  }
}

}  // namespace

factor::factor(float x) : value(x) {
  const auto all = std::bit_cast<std::uint32_t>(x);
  const int biased = static_cast<int>(all >> 23 & 0xff);
  significand = static_cast<std::int32_t>((all & 0x7fffff) | (biased == 0 ? 0u : 0x800000u));
  if (all >> 31 != 0) significand = -significand;
  exponent = (biased == 0 ? 1 : biased) - 127;
}

adder adder_of(operand_kind kind) {
  const bool first = used_architecture() == "sm_80";
  const int block = first ? 8 : 16;
  return {kind == operand_kind::tf32 ? block / 2 : block, first ? 24 : 25};
}

float add_products(const adder& how, const factor* a, const factor* b, int count, float c) {
  for (int k = 0; k < count; k += how.block) c = add_block(how, a + k, b + k, std::min(how.block, count - k), c);
  return c;
}

void multiply_fragments(operand_kind kind, warp_fragments (&lanes)[32]) {
  // By the manual's formulas: lane = 4 group + pair.
  const int width = kind == operand_kind::tf32 ? 1 : 2, depth = 8 * width;
  factor a[16][16], b[8][16];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, first = lane % 4 * width;
    for (int word = 0; word < 4; ++word)
      for (int i = 0; i < width; ++i) {
        const int k = word / 2 * depth / 2 + first + i;
        const auto at = static_cast<std::size_t>(word);
        a[group + word % 2 * 8][k] = factor(number(kind, lanes[lane].a[at], i));
        if (word < 2) b[group][word * depth / 2 + first + i] = factor(number(kind, lanes[lane].b[at], i));
      }
  }
  const adder how = adder_of(kind);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      float& c = lanes[lane].c[static_cast<std::size_t>(i)];
      c = add_products(how, a[lane / 4 + i / 2 * 8], b[lane % 4 * 2 + i % 2], depth, c);
    }
}

}  // namespace aft::ptx
