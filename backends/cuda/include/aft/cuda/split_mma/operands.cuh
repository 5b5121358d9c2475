// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/operands.cuh  Weights as operands of the tensor cores: two short numbers each, hi + lo.
///
/// A contract of float arithmetic is out of reach of one operand of 8 or 11 bits, so a weight x becomes hi = round(x)
/// and lo = round((x - hi) lo_scale), together 23 bits, and a product of weights four products of operands. An operand
/// tile has rows of 32 keys in 128 bytes, either as floats that are split when fragments are loaded (TF32), or as 32 hi
/// and then 32 lo halves. The eight 16-byte chunks of row r are kept in the order chunk ^ (r mod 8), so that the eight
/// rows of a matrix lie in different banks.
#pragma once

#include "../device/mma.cuh"
#include "../device/tuning.hpp"
#include "../math/arithmetic.cuh"
#include "../tensor/storage.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int operand_row_bytes = 128;
inline constexpr int chunk_bytes = 16;
static_assert(tuning::depth * 4 == operand_row_bytes);

/// Where the 16-byte chunk of a row of a tile lies.
AFT_HOST_DEVICE int chunk_at(int row, int chunk) {
  return row * operand_row_bytes + (chunk ^ (row & 7)) * chunk_bytes;
}

/// Written as one access.
struct alignas(16) four_floats {
  float x[4];
};
struct alignas(16) four_words {
  std::uint32_t x[4];
};
struct alignas(8) two_floats {
  float x[2];
};
struct alignas(8) four_halves {
  std::uint32_t x[2];
};

/// The j-th of some numbers in bfloat16: a shift or a mask.
template <class Words>
AFT_DEVICE float bfloat16_of(const Words& words, int j) {
  return from_bits<float>(j % 2 == 0 ? words.x[j / 2] << 16 : words.x[j / 2] & 0xffff0000u);
}

AFT_DEVICE std::uint32_t two_halves(std::uint16_t low, std::uint16_t high) {
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

/// For float data: the range of float.
struct tf32_operand {
  static constexpr int step = 8;      ///< depth of one product
  static constexpr int together = 1;  ///< steps whose fragments are held at once
  static constexpr float lo_scale = 1.0f;
  /// Operands are scaled to at most 1.42 2^shift. A term of a sum loses at most 2^-124 of its tile's unit, to
  /// numbers below the normal ones.
  static constexpr float shift = 0.0f;
  static constexpr float lost = 0x1p-124f;

  AFT_DEVICE static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    mma_tf32(d, a, b);
  }
  /// What becomes of x in an operand, hi + lo.
  AFT_DEVICE static float rounded(float x) {
    const float hi = from_bits<float>(to_tf32(x));
    return hi + from_bits<float>(to_tf32(x - hi));
  }
  /// Keys 4 group .. 4 group + 3 of a row.
  AFT_DEVICE static void store(std::byte* tile, int row, int group, const float (&x)[4]) {
    *reinterpret_cast<four_floats*>(tile + chunk_at(row, group)) = {{x[0], x[1], x[2], x[3]}};
  }
  /// Fragments of four matrices: `row` is this lane's row in the tile, `half` which half of the depth it names.
  AFT_DEVICE static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                              std::uint32_t (&lo)[4]) {
    load_matrices(hi, tile + chunk_at(row, 2 * step_index + half));
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = from_bits<float>(hi[i]);
      hi[i] = to_tf32(x);
      lo[i] = to_tf32(x - from_bits<float>(hi[i]));
    }
  }
};

/// For half and bfloat16 data: twice the products a cycle, in the range of half.
struct half_operand {
  static constexpr int step = 16;
  static constexpr int together = tuning::depth / step;
  /// As many bits as hi has, so that lo reaches as far below hi as the denormals of half allow.
  static constexpr float lo_scale = 0x1p11f;
  /// 1.42 2^15 is below half's 65504. A factor then loses at most half a unit of lo's denormals, 2^-51 of its tile's
  /// unit, and meets another of up to 1.42; so does the other.
  static constexpr float shift = 15.0f;
  static constexpr float lost = 0x1.8p-50f;

  AFT_DEVICE static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    mma_half(d, a, b);
  }
  AFT_DEVICE static float rounded(float x) {
    const float hi = half_to_float(float_to_half(x));
    return hi + half_to_float(float_to_half((x - hi) * lo_scale)) * (1.0f / lo_scale);
  }
  AFT_DEVICE static void store(std::byte* tile, int row, int group, const float (&x)[4]) {
    std::uint16_t hi[4], lo[4];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      hi[i] = float_to_half(x[i]);
      lo[i] = float_to_half((x[i] - half_to_float(hi[i])) * lo_scale);
    }
    const int within = group % 2 * 8;
    *reinterpret_cast<four_halves*>(tile + chunk_at(row, group / 2) +
                                    within) = {{two_halves(hi[0], hi[1]), two_halves(hi[2], hi[3])}};
    *reinterpret_cast<four_halves*>(tile + chunk_at(row, group / 2 + 4) +
                                    within) = {{two_halves(lo[0], lo[1]), two_halves(lo[2], lo[3])}};
  }
  AFT_DEVICE static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                              std::uint32_t (&lo)[4]) {
    load_matrices(hi, tile + chunk_at(row, 2 * step_index + half));
    load_matrices(lo, tile + chunk_at(row, 2 * step_index + half + 4));
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
