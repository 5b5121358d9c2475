// SPDX-License-Identifier: Apache-2.0
/// @file arguments/place.hpp  Where the tensors of a call lie, which is where it runs.
///
/// In C++ views have their space as a type, and a device belongs to a stream. Here both are values that every tensor
/// brings along, and tensors may contradict each other.
#pragma once

#include <aft/aft.h>

#include <aft/aft.hpp>

#include <initializer_list>

namespace aft::c_interface {

/// The host, or a CUDA device and a stream.
struct place {
  static constexpr std::int32_t any_device = -1;
  bool on_device = false;
  std::int32_t device = any_device;  ///< that of the tensors; any_device where managed memory leaves it to the stream
  void* stream = nullptr;
};

/// What a call was given under one name: a tensor or the tensors of a bias. NULL is nothing.
struct named {
  const char* name;
  const aft_tensor* tensor = nullptr;
  const aft_bias* bias = nullptr;
  bool of_gate = false;  ///< q, at which a gate of AFT_GATE_NONE does not look

  named(const char* n, const aft_tensor* t) : name(n), tensor(t) {}
  named(const char* n, const aft_bias* b) : name(n), bias(b) {}
  static named query(const aft_tensor* q) {
    named n("q", q);
    n.of_gate = true;
    return n;
  }
};

/// Whether this build has kernels for a device; C is any arithmetic type.
template <class C>
inline constexpr bool built_with_cuda = cuda_backend<C>::included;

/// The place of the tensors in `all`, then of those in the options, where `all_of_options` is set. Fails where two
/// contradict each other. Memory that host and device both reach, kDLCUDAManaged, goes along with the others; alone it
/// is the device's. A build without CUDA knows the host alone, and refuses a tensor when it reads it.
place find_place(const char* op, const aft_options& o, bool all_of_options, std::initializer_list<named> all);

/// Whether the tensor is in memory that only a device reads.
bool is_device_memory(const aft_tensor& tensor);

}  // namespace aft::c_interface
