// SPDX-License-Identifier: Apache-2.0
/// @file work_stream.hpp  The stream of a GPU that a call is on, and how arrays are ordered to it.
///
/// A call is on the current stream of the library that the first of its arrays on a GPU is of, so that one library's
/// arrays are computed, read and freed in the order of the program, without a wait. What another library does is
/// elsewhere: it is told the stream by __dlpack__, before which it puts what is still to be done for the array, and the
/// call is then done when it returns, since nothing tells that library when memory may be read or reused.
#pragma once

#include <aft/aft.h>

#include <optional>

#include "dlpack.hpp"
#include "../python.hpp"

namespace aft::python {

using device_type = decltype(aft_tensor::device);

/// aft.DeviceError, made with the module.
extern PyObject* device_error;

class work_stream {
 public:
  /// The caller's stream, a handle of CUDA's as a number, to which it has ordered every array already. None is ignored.
  void use(PyObject* handle);

  /// Takes part in the call: x, which lies on `device`, comes by __dlpack__. Returns the number of the stream that it
  /// is to be told, none where it lies on the host.
  object join(PyObject* x, device_type device);
  /// x has been described by functions that order nothing: orders it where its library is on another stream.
  void join_unordered(PyObject* x, device_type device);
  /// A capsule, of whose library nothing is known.
  void join_capsule(device_type device);

  /// For aft_options::cuda_stream.
  void* handle() const { return handle_; }
  /// The call is done when it returns, whatever its arrays are of.
  void complete_at_return() { mixed_ = true; }
  /// After a call that succeeded, before an array is let go of: waits where it has to. Raises aft.DeviceError.
  void finish(const char* op) const;

 private:
  void find(device_type device, std::optional<void*> current);
  object number() const;

  bool given_ = false, found_ = false, mixed_ = false;
  device_type device_{};
  void* handle_ = nullptr;
};

/// Whether a GPU that kernels can be run on has memory of this kind.
inline bool is_on_gpu(device_type device) {
  return device.type == cuda_device || device.type == managed_device;
}

}  // namespace aft::python
