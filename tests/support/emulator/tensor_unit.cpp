// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warp, fragment by fragment as the PTX manual lays them out.
#include <aft/core/numeric.hpp>

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "device_emulator.hpp"

namespace aft::emulator {

namespace {

/// A whole product, d = a b + d, with the columns of b side by side.
template <int depth>
struct operands {
  double a[16][depth], b[depth][8], d[16][8];
};

/// d + the sum of exact products, for the 8 elements of a row of d. The manual leaves open how a tensor core adds; this
/// one does as those that were measured do, or a little worse: all terms are cut, not rounded, at one bit below the
/// last of the largest, and so is their sum. By bits and integers, and 8 at a time in loops that become vectors:
/// library calls here would be half of the tests' time.
template <int depth>
void add_products(const double (&a)[depth], const double (&b)[depth][8], const double (&d)[8], float (&result)[8]) {
  constexpr int kept_bits = 25, bias = 1023, mantissa_bits = 52;
  constexpr std::uint64_t exponent_mask = std::uint64_t{0x7ff} << mantissa_bits;
  const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  double products[depth][8], plain[8], largest[8];
  for (int j = 0; j < 8; ++j) {
    plain[j] = d[j];
    largest[j] = std::abs(d[j]);
  }
  for (int k = 0; k < depth; ++k) {
    for (int j = 0; j < 8; ++j) {
      const double x = a[k] * b[k][j];
      products[k][j] = x;
      plain[j] += x;
      largest[j] = std::abs(x) > largest[j] ? std::abs(x) : largest[j];
    }
  }
  double unit[8], inverse[8];
  for (int j = 0; j < 8; ++j) {
    const double x = std::bit_cast<double>(bits(largest[j]) & exponent_mask) * (2.0 / (1 << kept_bits));
    unit[j] = x > 0x1p-149 ? x : 0x1p-149;
    inverse[j] = std::bit_cast<double>((std::uint64_t{2 * bias} << mantissa_bits) - bits(unit[j]));
  }
  // Integers below 2^25 in size, unless a term is no number.
  const auto cut = [](double x) { return static_cast<std::int32_t>(std::abs(x) < 0x1p26 ? x : 0.0); };
  std::int32_t whole[8];
  for (int j = 0; j < 8; ++j) whole[j] = cut(d[j] * inverse[j]);
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < 8; ++j) whole[j] += cut(products[k][j] * inverse[j]);
  for (int j = 0; j < 8; ++j) {
    const double sum = whole[j] * unit[j];
    const auto nearest = static_cast<float>(sum);
    // The next number towards 0 where rounding went away from it.
    const std::uint32_t away = std::abs(static_cast<double>(nearest)) > std::abs(sum) ? 1 : 0;
    const float towards_zero = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - away);
    const bool special = largest[j] == 0 || !(std::abs(plain[j]) <= std::numeric_limits<double>::max());
    result[j] = special ? static_cast<float>(plain[j]) : towards_zero;
  }
}

/// What a lane hands in, and finds its results in.
struct handed_in {
  std::uint32_t a[4], b[2];
  float d[4];
};
static_assert(sizeof(handed_in) <= slot_bytes);

/// The product of a warp, in place. A word holds `width` numbers, each given by number(word, which).
template <int width, class Number>
void multiply_warp(const warp_slots& all, const Number& number) {
  constexpr int depth = 8 * width;
  operands<depth> x;
  for (int lane = 0; lane < warp; ++lane) {
    handed_in own;
    std::memcpy(&own, all[lane], sizeof own);
    const int group = lane / 4, first = lane % 4 * width;
    for (int i = 0; i < width; ++i) {
      for (int half = 0; half < 2; ++half) {
        const int k = half * depth / 2 + first + i;
        x.a[group][k] = number(own.a[2 * half], i);
        x.a[group + 8][k] = number(own.a[2 * half + 1], i);
        x.b[k][group] = number(own.b[half], i);
      }
    }
    for (int i = 0; i < 4; ++i) x.d[group + i / 2 * 8][2 * (lane % 4) + i % 2] = own.d[i];
  }
  float result[16][8];
  for (int row = 0; row < 16; ++row) add_products<depth>(x.a[row], x.b, x.d[row], result[row]);
  for (int lane = 0; lane < warp; ++lane) {
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = result[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
    std::memcpy(all[lane] + offsetof(handed_in, d), d, sizeof d);
  }
}

void require_whole(const warp_slots& all) {
  if (all.lanes < warp) fail("an instruction for whole warps in a warp with fewer lanes");
}

template <int width, class Number>
void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at,
              const Number& number) {
  const int lane = thread_index() % warp;
  handed_in own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  std::memcpy(own_slot(), &own, sizeof own);
  const warp_slots all = meet(at);
  require_whole(all);
  if (all.first) multiply_warp<width>(all, number);
  std::memcpy(d, all[lane] + offsetof(handed_in, d), sizeof d);
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
  const int lane = thread_index() % warp;
  std::memcpy(own_slot(), &row, sizeof row);
  const warp_slots all = meet(at);
  require_whole(all);
  for (int i = 0; i < 4; ++i) {
    const unsigned char* from = nullptr;
    std::memcpy(&from, all[8 * i + lane / 4], sizeof from);
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) fail("a row of a matrix that is not aligned to 16 bytes");
    std::memcpy(&words[i], from + 4 * (lane % 4), 4);
  }
}

void multiply_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  multiply<1>(d, a, b, at, [](std::uint32_t word, int) { return static_cast<double>(from_tf32(word)); });
}

void multiply_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  multiply<2>(d, a, b, at, [](std::uint32_t word, int i) {
    return static_cast<double>(detail::half_bits_to_float(static_cast<std::uint16_t>(word >> (16 * i))));
  });
}

bool product_forced() {
  static const bool forced = [] {
    const char* const device = std::getenv("AFT_TEST_ON_DEVICE");
    return device != nullptr && std::strcmp(device, "tensor_cores") == 0;
  }();
  return forced;
}

}  // namespace aft::emulator
