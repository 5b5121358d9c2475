// SPDX-License-Identifier: Apache-2.0
/// @file tensor_cores.hpp  How tensor cores add, by published models.
///
/// Products are exact. Of a block of products and what they are added to, all are cut, not rounded, at so many bits
/// below the largest exponent, where a product's is the sum of its factors'; the sum is exact and is cut to float:
/// M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7
/// (2021) e330, for the A100; F. A. Khattak, M. Mikaitis, Accurate models of NVIDIA tensor cores, arXiv:2512.07004, for
/// the A100 and the H100. What cannot be shown here: that a device adds like that, which only a device can say; that
/// products of warpgroups add as those of warps do on the H100, which is assumed.
#pragma once

#include <array>
#include <cstdint>

#include "together.hpp"

namespace aft::ptx {

/// Products that are added at once, and bits that are kept below that of the largest exponent.
struct adder {
  int block;
  int bits;
};
/// Of the architecture in use.
adder adder_of(operand_kind kind);

/// A number as significand times 2^exponent, the first bit of an ordinary one at 2^0 and 23 bits behind the point;
/// denormal numbers have the exponent of the least ordinary ones.
struct factor {
  float value = 0;
  std::int32_t significand = 0;
  int exponent = 0;

  factor() = default;
  explicit factor(float x);
};

/// c plus `count` products.
float add_products(const adder& how, const factor* a, const factor* b, int count, float c);

/// What a lane hands in, and finds its results in (c).
struct warp_fragments {
  std::array<std::uint32_t, 4> a;
  std::array<std::uint32_t, 2> b;
  std::array<float, 4> c;
};
void multiply_fragments(operand_kind kind, warp_fragments (&lanes)[32]);

}  // namespace aft::ptx
