// SPDX-License-Identifier: Apache-2.0
/// @file dlpack_tensor.hpp  C++ views and options as the C interface wants them, for tests that call both.
#pragma once

#include "support/engines/engine.hpp"

#include <aft/aft.h>

#include <vector>

namespace aft::test {

/// An aft_tensor and the arrays that it points to.
class c_tensor {
 public:
  c_tensor() = default;
  c_tensor(const any_view& v) : given_(!v.empty()) {
    for (std::size_t i = 0; i < v.rank(); ++i) {
      shape.push_back(v.extent(i));
      strides.push_back(v.stride(i));
    }
    // Code and bits, in the order of dtype.
    static constexpr std::uint8_t types[][2] = {{2, 32}, {2, 64}, {2, 16}, {4, 16}, {1, 8},  {0, 8},
                                                {0, 32}, {0, 64}, {0, 16}, {1, 16}, {1, 32}, {1, 64}};
    const auto type = static_cast<std::size_t>(v.empty() ? dtype::f32 : v.type());
    value.data = v.data();
    value.device.type = v.on_device() ? 2 : 1;
    value.ndim = static_cast<std::int32_t>(v.rank());
    value.dtype.code = types[type][0];
    value.dtype.bits = types[type][1];
    value.dtype.lanes = 1;
  }

  std::vector<std::int64_t> shape, strides;
  aft_tensor value{};

  /// The description, null for an empty view.
  const aft_tensor* get() {
    if (!given_) return nullptr;
    if (value.shape == nullptr) value.shape = shape.data();
    if (value.strides == nullptr) value.strides = strides.data();
    return &value;
  }

 private:
  bool given_ = false;
};

/// The defaults.
inline aft_options sized_options() {
  aft_options o{};
  o.size = sizeof o;
  return o;
}

/// aft_options and the tensors that it points to.
class c_options {
 public:
  explicit c_options(const options& o, int threads = 0)
      : tensors_{o.mask, o.key_lengths, o.lse, o.average, o.query_lengths, o.query_offsets, o.key_offsets, o.slot_ids} {
    // In the order of aft::gate.
    static constexpr int gates[] = {AFT_GATE_NONE, AFT_GATE_IDENTITY, AFT_GATE_SIGMOID,
                                    AFT_GATE_RELU, AFT_GATE_TANH,     AFT_GATE_SILU};
    value.size = sizeof value;
    value.causal = o.causal ? 1 : 0;
    value.gate = gates[static_cast<int>(o.gate_fn)];
    value.outside = o.outside == outside::excluded ? AFT_EXCLUDED : AFT_ZERO_BIAS;
    value.threads = threads;
    value.first_query = o.first_query;
    const aft_tensor** const members[] = {&value.mask,        &value.key_lengths,   &value.lse,
                                          &value.average,     &value.query_lengths, &value.query_offsets,
                                          &value.key_offsets, &value.slot_ids};
    for (std::size_t i = 0; i < std::size(tensors_); ++i) *members[i] = tensors_[i].get();
  }
  c_options(const c_options&) = delete;
  c_options& operator=(const c_options&) = delete;
  aft_options value{};

 private:
  c_tensor tensors_[8];
};

}  // namespace aft::test
