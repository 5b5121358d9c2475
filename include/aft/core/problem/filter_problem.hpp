// SPDX-License-Identifier: Apache-2.0
/// @file problem/filter_problem.hpp  What aft::reparameterize and its gradients hand to a backend.
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

/// out from r, gain and shift; `backward`: dr, dgain and dshift, as far as they are given, from r, gain and dout.
struct filter_problem {
  bool backward = false;
  index_t heads = 0;
  std::array<index_t, 3> taps{1, 1, 1};
  filter_tensor r{}, gain{}, shift{}, dout{};
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
