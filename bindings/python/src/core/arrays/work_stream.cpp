// SPDX-License-Identifier: Apache-2.0
#include "work_stream.hpp"

#include "array.hpp"
#include "libraries.hpp"
#include "../device/gpu.hpp"

namespace aft::python {

PyObject* device_error = nullptr;

void work_stream::use(PyObject* handle) {
  if (handle == Py_None) return;
  given_ = found_ = true;
  handle_ = to_stream_handle(to_int64({"aft", "cuda_stream"}, handle));
}

void work_stream::find(device_type device, std::optional<void*> current) {
  if (!found_) {
    found_ = true;
    // Without one the default stream, as in C.
    handle_ = current.value_or(nullptr);
  }
  // Managed memory may be used on any device, and leaves it to the others where the call is.
  if (device_.type != cuda_device) device_ = device;
  if (current != handle_) mixed_ = true;
}

object work_stream::number() const {
  // DLPack has no 0: that could be either default stream, and the legacy one is 1.
  const auto handle = reinterpret_cast<std::uintptr_t>(handle_);
  return object::owned(PyLong_FromSize_t(handle == 0 ? 1 : handle));
}

object work_stream::join(PyObject* x, device_type device) {
  if (!is_on_gpu(device)) return {};
  find(device, current_stream(x, device));
  // The library is about to refuse the call; a stream of another GPU would be refused by x first, by a worse text.
  if (device.type == device_.type && device.id != device_.id) return object::owned(PyLong_FromLong(-1));
  return number();
}

void work_stream::join_unordered(PyObject* x, device_type device) {
  if (!gpu::is_built() || !is_on_gpu(device)) return;
  const std::optional<void*> current = current_stream(x, device);
  find(device, current);
  // What is on the call's own stream is in order. The capsule itself is not looked at, and frees what it holds.
  if (current != handle_) static_cast<void>(call_dlpack(x, join(x, device).get()));
}

void work_stream::join_capsule(device_type device) {
  // A caller that names the stream has ordered them to it.
  if (given_ || !is_on_gpu(device)) return;
  find(device, {});
}

void work_stream::finish(const char* op) const {
  if (!mixed_ || !gpu::is_built()) return;
  PyThreadState* const state = PyEval_SaveThread();
  const std::string failed = gpu::wait(device_.type == cuda_device ? device_.id : -1, handle_);
  PyEval_RestoreThread(state);
  if (!failed.empty()) raise(device_error, "%s: %s", op, failed.c_str());
}

}  // namespace aft::python
