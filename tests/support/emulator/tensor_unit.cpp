// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warp, fragment by fragment as the PTX manual lays them out. It sees no memory of a kernel but
// what its lanes hand in, and is compiled without sanitizers.
#include <aft/core/numeric.hpp>

#include <bit>
#include <cstddef>
#include <cmath>

#include "device_emulator.hpp"
#include "warpgroup.hpp"

namespace aft::emulator {

namespace {

/// Columns are taken by twos, in the vectors that every target has: this is most of the tests' arithmetic.
using two [[gnu::vector_size(16)]] = double;
using two_floats [[gnu::vector_size(8)]] = float;
using two_words [[gnu::vector_size(8)]] = std::uint32_t;
using two_integers [[gnu::vector_size(8)]] = std::int32_t;
using two_patterns [[gnu::vector_size(16)]] = std::uint64_t;

two magnitude(two x) {
  return std::bit_cast<two>(std::bit_cast<two_patterns>(x) & ~(std::uint64_t{1} << 63));
}
two larger(two x, two y) {
  return x > y ? x : y;
}

/// A whole product, d = a b + d.
template <int depth>
struct operands {
  double a[16][depth];
  double b[4][depth][2];  ///< columns by twos
  double d[16][4][2];
};

/// d + the sum of exact products. The manual leaves open how a tensor core adds; this one does as those that were
/// measured do, or a little worse: all terms are cut, not rounded, at one bit below the last of the largest, and so is
/// their sum. By bits and integers, without a library call.
template <int depth>
two_floats add_products(const double (&a)[depth], const double (&b)[depth][2], const double (&d)[2]) {
  constexpr int kept_bits = 25, bias = 1023, mantissa_bits = 52;
  constexpr std::uint64_t exponent_mask = std::uint64_t{0x7ff} << mantissa_bits;
  const two start{d[0], d[1]};
  two products[depth];
  two plain = start;
  two largest = magnitude(start);
  for (int k = 0; k < depth; ++k) {
    products[k] = a[k] * two{b[k][0], b[k][1]};
    plain += products[k];
    largest = larger(magnitude(products[k]), largest);
  }
  const two power = std::bit_cast<two>(std::bit_cast<two_patterns>(largest) & exponent_mask);
  const two unit = larger(power * (2.0 / (1 << kept_bits)), two{0x1p-149, 0x1p-149});
  const two inverse =
      std::bit_cast<two>((std::uint64_t{2 * bias} << mantissa_bits) - std::bit_cast<two_patterns>(unit));
  // Each is below 2^25 in size; anything, where a term is no number.
  const auto cut = [&](two x) { return std::bit_cast<two_words>(__builtin_convertvector(x * inverse, two_integers)); };
  two_words whole = cut(start);
  for (int k = 0; k < depth; ++k) whole += cut(products[k]);
  const two sum = __builtin_convertvector(std::bit_cast<two_integers>(whole), two) * unit;
  two_floats result = __builtin_convertvector(sum, two_floats);
  for (int j = 0; j < 2; ++j) {
    const auto nearest = static_cast<float>(sum[j]);
    const bool away = std::abs(static_cast<double>(nearest)) > std::abs(sum[j]);
    result[j] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - (away ? 1 : 0));
    if (largest[j] == 0 || !std::isfinite(plain[j])) result[j] = static_cast<float>(plain[j]);
  }
  return result;
}

/// What a lane hands in, and finds its results in.
struct handed_in {
  std::uint32_t a[4], b[2];
  float d[4];
};
static_assert(sizeof(handed_in) <= slot_bytes);

/// A word of operands. The tensor core does not look at the 13 bits that TF32 has less than float.
struct tf32_word {
  static constexpr int numbers = 1;
  static constexpr std::uint32_t magnitude = 0x7fffe000;

  static double number(std::uint32_t word, int) { return std::bit_cast<float>(word & ~std::uint32_t{0x1fff}); }
  static bool special(std::uint32_t word) { return (word & 0x7f800000) == 0x7f800000; }
};
struct half_word {
  static constexpr int numbers = 2;
  static constexpr std::uint32_t magnitude = 0x7fff7fff;

  static double number(std::uint32_t word, int i) {
    return detail::half_bits_to_float(static_cast<std::uint16_t>(word >> (16 * i)));
  }
  static bool special(std::uint32_t word) { return (word & 0x7c000000) == 0x7c000000 || (word & 0x7c00) == 0x7c00; }
};
struct bfloat16_word {
  static constexpr int numbers = 2;
  static constexpr std::uint32_t magnitude = 0x7fff7fff;

  static double number(std::uint32_t word, int i) {
    return std::bit_cast<float>(i == 0 ? word << 16 : word & 0xffff0000u);
  }
  static bool special(std::uint32_t word) { return (word & 0x7f800000) == 0x7f800000 || (word & 0x7f80) == 0x7f80; }
};

/// The product of a warp, in place.
template <class Word>
void multiply_warp(const warp_slots& all) {
  constexpr int width = Word::numbers, depth = 8 * width;
  operands<depth> x;
  std::uint32_t row[16]{}, column_pair[4]{};  // what is not 0
  bool special = false;
  for (int lane = 0; lane < warp; ++lane) {
    handed_in own;
    std::memcpy(&own, all[lane], sizeof own);
    const int group = lane / 4, first = lane % 4 * width;
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t upper = own.a[2 * half], lower = own.a[2 * half + 1], right = own.b[half];
      special = special || Word::special(upper) || Word::special(lower) || Word::special(right);
      row[group] |= upper & Word::magnitude;
      row[group + 8] |= lower & Word::magnitude;
      column_pair[group / 2] |= right & Word::magnitude;
      for (int i = 0; i < width; ++i) {
        const int k = half * depth / 2 + first + i;
        x.a[group][k] = Word::number(upper, i);
        x.a[group + 8][k] = Word::number(lower, i);
        x.b[group / 2][k][group % 2] = Word::number(right, i);
      }
    }
    for (int i = 0; i < 4; ++i) x.d[group + i / 2 * 8][lane % 4][i % 2] = own.d[i];
  }
  for (int lane = 0; lane < warp; ++lane) {
    const int pair = lane % 4;
    for (int i = 0; i < 2; ++i) {
      const int group = lane / 4 + 8 * i;
      const double(&d)[2] = x.d[group][pair];
      // Products of 0 change no sum, except for its sign where that is -0; tiles are padded with many.
      const bool empty = row[group] == 0 || column_pair[pair] == 0;
      if (empty && !special && !(d[0] == 0 && std::signbit(d[0])) && !(d[1] == 0 && std::signbit(d[1]))) continue;
      const two_floats sum = add_products<depth>(x.a[group], x.b[pair], d);
      std::memcpy(all[lane] + offsetof(handed_in, d[0]) + static_cast<std::size_t>(i) * sizeof sum, &sum, sizeof sum);
    }
  }
}

template <class Word>
void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  const int lane = thread_index() % warp;
  handed_in own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  std::memcpy(own_slot(), &own, sizeof own);
  const warp_slots all = meet(at);
  require_whole(all);
  if (all.first) multiply_warp<Word>(all);
  std::memcpy(d, all[lane] + offsetof(handed_in, d), sizeof d);
}

}  // namespace

std::uint32_t to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (!std::isfinite(x)) return bits;
  return (bits + 0x1000) & ~std::uint32_t{0x1fff};  // to nearest, ties away from 0
}

void multiply_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  multiply<tf32_word>(d, a, b, at);
}

void multiply_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  multiply<half_word>(d, a, b, at);
}

void multiply_bfloat16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at) {
  multiply<bfloat16_word>(d, a, b, at);
}

void multiply_bfloat16_rows(const std::uint16_t (&a)[64][16], const std::uint16_t (&b)[256][16],
                            float (&acc)[64][256]) {
  constexpr std::uint16_t sign = 0x8000, infinity = 0x7f80;
  const auto number = [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); };
  double right[128][16][2];
  bool filled[128]{}, special = false;
  const auto look = [&](std::uint16_t x) {
    special = special || (x & infinity) == infinity;
    return (x & ~sign) != 0;
  };
  for (int j = 0; j < 256; ++j)
    for (int k = 0; k < 16; ++k) {
      right[j / 2][k][j % 2] = number(b[j][k]);
      filled[j / 2] = look(b[j][k]) || filled[j / 2];
    }
  for (const auto& row : a)
    for (std::uint16_t x : row) (void)look(x);
  for (int i = 0; i < 64; ++i) {
    double left[16];
    bool any = special;
    for (int k = 0; k < 16; ++k) {
      left[k] = number(a[i][k]);
      any = any || left[k] != 0;
    }
    for (int j = 0; j < 128 && any; ++j) {
      // Sums of a forward product are never -0, which products of 0 would change.
      if (!filled[j] && !special) continue;
      const double d[2] = {acc[i][2 * j], acc[i][2 * j + 1]};
      const two_floats sum = add_products<16>(left, right[j], d);
      std::memcpy(&acc[i][2 * j], &sum, sizeof sum);
    }
  }
}

}  // namespace aft::emulator
