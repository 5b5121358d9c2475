// SPDX-License-Identifier: Apache-2.0
// The current device of the C interface's calls. Kernels take the device of their stream; the default stream is of the
// device that is current, which is none of a C caller's concern: tensors name theirs.
#include "../c_interface/device.hpp"

#include <aft/core/checks/validation.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace aft::c_interface {

namespace {

/// Empty where all went well. An error that is not sticky stays behind until it is read.
std::string error_text(cudaError_t status) {
  if (status == cudaSuccess) return {};
  (void)cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}

void throw_on(const char* op, cudaError_t status) {
  if (const std::string error = error_text(status); !error.empty()) throw device_error(std::string(op) + ": " + error);
}

/// The device of a stream, or `known` where nobody can tell: before CUDA 12.8, and while the stream is being captured,
/// which a question would end.
int device_of([[maybe_unused]] void* stream, int known) {
#if CUDART_VERSION >= 12080
  const auto asked = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  int device = known;
  if (stream != nullptr && error_text(cudaStreamIsCapturing(asked, &capture)).empty() &&
      capture == cudaStreamCaptureStatusNone && error_text(cudaStreamGetDevice(asked, &device)).empty())
    return device;
#endif
  return known;
}

}  // namespace

device_scope::device_scope(const char* op, const place& where) {
  throw_on(op, cudaGetDevice(&before_));
  if (where.device == place::any_device) return;
  if (where.device != before_) {
    throw_on(op, cudaSetDevice(where.device));
    changed_ = true;
  }
  if (const int device = device_of(where.stream, where.device); device != where.device) {
    if (changed_) (void)error_text(cudaSetDevice(before_));
    checks::fail(op, {"cuda_stream"}, checks::text("a stream of CUDA device ") << index_t{where.device},
                 checks::text("one of CUDA device ") << index_t{device});
  }
}

device_scope::~device_scope() {
  if (changed_) (void)error_text(cudaSetDevice(before_));
}

}  // namespace aft::c_interface
