// SPDX-License-Identifier: Apache-2.0
/// @file tensor/wide_access.cuh  Elements of any type as double, for calls that always work in double.
#pragma once

#include "storage.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

AFT_DEVICE double load_wide(const std::byte* data, dtype type, index_t at) {
  return type == dtype::f64 ? load<double>(data, type, at) : static_cast<double>(load<float>(data, type, at));
}

AFT_DEVICE void store_wide(std::byte* data, dtype type, index_t at, double x) {
  if (type == dtype::f64) {
    store<double>(data, type, at, x);
  } else {
    store<float>(data, type, at, static_cast<float>(x));
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
