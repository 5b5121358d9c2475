// SPDX-License-Identifier: Apache-2.0
/// @file faulty_operands.hpp  Operands of matrix products with a mistake planted, for the emulated device.
#pragma once

#include <aft/cuda/split_mma/mainloop.cuh>

#include <utility>

namespace aft::test {

using namespace aft::cuda_impl;

struct no_cross_terms : half_operand {
  static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    // The last quarter of a tile's products are those of the high parts.
    constexpr int all = 4 * together;
    static thread_local int calls[product_threads];
    if (calls[thread_index()]++ % all >= all - together) half_operand::multiply(d, a, b);
  }
};
struct unsplit : tf32_operand {
  static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                   std::uint32_t (&lo)[4]) {
    tf32_operand::load(tile, row, half, step_index, hi, lo);
    for (std::uint32_t& x : lo) x = 0;
  }
};
/// Where the second half of the depth is right, the first is the second too.
struct swapped_halves : tf32_operand {
  static void load(const std::byte* tile, int row, int, int step_index, std::uint32_t (&hi)[4],
                   std::uint32_t (&lo)[4]) {
    tf32_operand::load(tile, row, 1, step_index, hi, lo);
  }
};
struct wrong_half : half_operand {
  static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                   std::uint32_t (&lo)[4]) {
    half_operand::load(tile, row, 1 - half, step_index, hi, lo);
    if (half == 0) std::swap(hi[0], hi[2]);
  }
};
struct unswizzled : tf32_operand {
  static void store(std::byte* tile, int row, int group, const float (&x)[4]) {
    *reinterpret_cast<four_floats*>(tile + row * operand_row_bytes + group * chunk_bytes) = {{x[0], x[1], x[2], x[3]}};
  }
};

}  // namespace aft::test
