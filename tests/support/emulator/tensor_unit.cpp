// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warp, fragment by fragment as the PTX manual lays them out.
#include <aft/core/numeric.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "device_emulator.hpp"

namespace aft::emulator {

namespace {

/// c + the sum of n exact products. The manual leaves open how a tensor core adds; this one does as those that were
/// measured do, or a little worse: all terms are cut, not rounded, at one bit below the last of the largest, and so is
/// their sum.
float add_products(float c, const double* products, int n) {
  double largest = std::abs(static_cast<double>(c));
  double plain = c;
  for (int i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(products[i]));
    plain += products[i];
  }
  if (largest == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  // By bits and integers: library calls here would be half of the tests' time.
  constexpr int kept_bits = 25, bias = 1023, mantissa_bits = 52;
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> mantissa_bits) - bias;
  const int last = std::max(exponent + 1 - kept_bits, -149);
  const auto power = [](int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + bias) << mantissa_bits); };
  const double inverse = power(-last);
  const auto cut = [&](double x) { return static_cast<std::int64_t>(x * inverse); };
  std::int64_t whole = cut(c);
  for (int i = 0; i < n; ++i) whole += cut(products[i]);
  const double sum = static_cast<double>(whole) * power(last);
  const auto nearest = static_cast<float>(sum);
  return std::abs(static_cast<double>(nearest)) > std::abs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

/// A lane's operands as numbers: `width` of them to a word.
template <int width>
struct fragments {
  float a[4][width];
  float b[2][width];
};

template <int width>
void multiply(float (&d)[4], const fragments<width>& own, const place& at) {
  const int lane = thread_index() % 32;
  const warp_bytes all = collect(&own, sizeof own, at);
  const auto of = [&](int other) { return reinterpret_cast<const fragments<width>*>(all.lane[other]); };
  constexpr int depth = 8 * width;
  double products[depth];
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4;  // of its half of the rows
    const int column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < depth; ++k) {
      // Depth k is element k % width of the word of lane k / width % 4 in half k / (4 width).
      const int word = k / (4 * width);
      const int j = k / width % 4;
      const double left = of(row * 4 + j)->a[i / 2 + 2 * word][k % width];
      products[k] = left * of(column * 4 + j)->b[word][k % width];
    }
    d[i] = add_products(d[i], products, depth);
  }
}

/// The tensor core does not look at the 13 bits that TF32 has less than float.
float from_tf32(std::uint32_t bits) {
  return std::bit_cast<float>(bits & ~std::uint32_t{0x1fff});
}

}  // namespace

std::uint32_t to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (!std::isfinite(x)) return bits;
  return (bits + 0x1000) & ~std::uint32_t{0x1fff};  // to nearest, ties away from 0
}

void load_matrices(std::uint32_t (&words)[4], const void* row, const place& at) {
  const int lane = thread_index() % 32;
  const warp_bytes all = collect(&row, sizeof row, at);
  for (int i = 0; i < 4; ++i) {
    const unsigned char* from = nullptr;
    std::memcpy(&from, all.lane[8 * i + lane / 4], sizeof from);
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
      throw kernel_error("a row of a matrix that is not aligned to 16 bytes");
    std::memcpy(&words[i], from + 4 * (lane % 4), 4);
  }
}

void multiply_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  fragments<1> own;
  for (int i = 0; i < 4; ++i) own.a[i][0] = from_tf32(a[i]);
  for (int i = 0; i < 2; ++i) own.b[i][0] = from_tf32(b[i]);
  multiply(d, own, at);
}

void multiply_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  fragments<2> own;
  const auto half_of = [](std::uint32_t word, int i) {
    return detail::half_bits_to_float(static_cast<std::uint16_t>(word >> (16 * i)));
  };
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j) own.a[i][j] = half_of(a[i], j);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) own.b[i][j] = half_of(b[i], j);
  multiply(d, own, at);
}

bool product_forced() {
  static const bool forced = [] {
    const char* const device = std::getenv("AFT_TEST_ON_DEVICE");
    return device != nullptr && std::strcmp(device, "tensor_cores") == 0;
  }();
  return forced;
}

}  // namespace aft::emulator
