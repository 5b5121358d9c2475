// SPDX-License-Identifier: Apache-2.0
/// @file memory.hpp  aft._core.Memory: an array that this package owns, for whoever imports it through DLPack.
#pragma once

#include <aft/aft.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dlpack.hpp"
#include "../python.hpp"

namespace aft::python {

/// Row-major memory of the host or of a GPU, aligned to 64 bytes. Shared by the object and by every tensor that was
/// exported, which may outlive it and be freed by threads that know nothing of Python.
struct block {
  std::shared_ptr<std::byte> bytes;
  std::vector<std::int64_t> shape, strides;
  decltype(aft_tensor::dtype) type;
  decltype(aft_tensor::device) device{cpu_device, 0};

  /// Throws std::bad_alloc, also where the size has no number.
  block(std::vector<std::int64_t> extents, decltype(aft_tensor::dtype) element,
        decltype(aft_tensor::device) at = {cpu_device, 0});
  aft_tensor tensor() const;
};

/// Makes the type and adds it to the module.
void add_memory_type(PyObject* module);

/// A new object Memory that holds the block.
object make_memory(const block& held);

/// The description of what an object Memory holds, valid as long as that lives.
aft_tensor tensor_of(PyObject* memory);

}  // namespace aft::python
