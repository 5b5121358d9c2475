// SPDX-License-Identifier: Apache-2.0
/// @file dlpack.hpp  The structs of DLPack 1 that cross between libraries (https://dmlc.github.io/dlpack/latest).
///
/// A tensor itself is aft_tensor, which has the layout of DLTensor. Only what owns one is described here. Layout and
/// order are the standard's; names are this project's own, so that dlpack.h may be included beside it.
#pragma once

#include <aft/aft.h>

#include <cstdint>

namespace aft::python {

/// DLManagedTensor, which a capsule named "dltensor" holds.
struct managed_tensor {
  aft_tensor tensor;
  void* context;
  void (*deleter)(managed_tensor* self);
};

/// DLManagedTensorVersioned, which a capsule named "dltensor_versioned" holds.
struct versioned_tensor {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(versioned_tensor* self);
  std::uint64_t flags;
  aft_tensor tensor;
};

/// DLPackExchangeAPI, which a type shows as __dlpack_c_exchange_api__: the same in C, without a Python call. Each
/// function returns 0, or -1 with Python's error set. What is without arguments here is not used.
struct exchange_functions {
  std::uint32_t major, minor;
  exchange_functions* older;
  void (*allocate)();
  int (*to_managed)(void* array, versioned_tensor** made);
  void (*from_managed)();
  int (*to_borrowed)(void* array, aft_tensor* described);  ///< valid as long as the array; may be NULL
  int (*current_stream)(std::int32_t type, std::int32_t number, void** stream);  ///< of a device
};
inline constexpr const char* exchange_name = "dlpack_exchange_api";

/// Bits of versioned_tensor::flags.
inline constexpr std::uint64_t read_only_flag = 1, copied_flag = 2;

/// The major version whose layout this is. A minor one only adds meanings, never members before these.
inline constexpr std::uint32_t known_major = 1;

// What takes a tensor out of its capsule renames it, so that nobody does it twice.
inline constexpr const char* plain_name = "dltensor";
inline constexpr const char* used_plain_name = "used_dltensor";
inline constexpr const char* versioned_name = "dltensor_versioned";
inline constexpr const char* used_versioned_name = "used_dltensor_versioned";

/// DLDeviceType and DLDataTypeCode, as far as this package makes such tensors itself or has their results made.
inline constexpr std::int32_t cpu_device = 1, cuda_device = 2, managed_device = 13;
enum type_code : std::uint8_t {
  int_code = 0,
  uint_code = 1,
  float_code = 2,
  bfloat_code = 4,
  complex_code = 5,
  bool_code = 6
};

}  // namespace aft::python
