// SPDX-License-Identifier: Apache-2.0
/// @file problem/filter_problem.hpp  What calls that look at a filter alone hand to a backend.
#pragma once

#include "../views/any_view.hpp"
#include "problem.hpp"

namespace aft {

/// A filter (h, j0, j1, j2), or a number per head. Strides in elements; null data: not given.
struct filter_tensor {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  index_t sh = 0;
  std::array<index_t, 3> sj{};
};

/// What becomes of a filter: normalised with a gain and a shift, the entropy of its softmax, weighed by a sample of its
/// Gumbel softmax, or but for its largest tap set to 0.
enum class filter_form : std::uint8_t { normalised, entropy, gumbel, largest };

/// out from r and what the form takes besides: gain and shift, or noise and tau. `backward`: gradients, as far as they
/// are given, from the same and dout.
struct filter_problem {
  filter_form form = filter_form::normalised;
  bool backward = false;
  double tau = 1;
  index_t heads = 0;
  std::array<index_t, 3> taps{1, 1, 1};
  filter_tensor r{}, noise{}, gain{}, shift{}, dout{};
  filter_tensor out{}, dr{}, dgain{}, dshift{};
};

inline namespace AFT_ISA {

inline filter_tensor to_filter_tensor(const any_view& v) {
  filter_tensor t;
  if (v.rank() == 0) return t;
  t.data = static_cast<std::byte*>(v.data());
  t.type = v.type();
  t.sh = v.stride(0);
  for (std::size_t i = 1; i < v.rank(); ++i) t.sj[3 - v.rank() + i] = v.stride(i);
  return t;
}

}  // namespace AFT_ISA
}  // namespace aft
