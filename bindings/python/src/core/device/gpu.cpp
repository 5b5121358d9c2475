// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <new>

#ifdef AFT_COMPILED_CUDA
#include <cuda_runtime_api.h>
#endif

namespace aft::python::gpu {

#ifdef AFT_COMPILED_CUDA

namespace {

/// The device is current while this lives, and then the one that the program had chosen.
class current_device {
 public:
  /// Below 0 it stays what it is.
  explicit current_device(int device) {
    if (device < 0) return;
    status = cudaGetDevice(&before_);
    if (status == cudaSuccess) status = cudaSetDevice(device);
    changed_ = status == cudaSuccess;
  }
  ~current_device() {
    if (changed_) cudaSetDevice(before_);
  }
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

  cudaError_t status = cudaSuccess;  ///< another where there is no such device

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Empty where all went well.
std::string text_of(cudaError_t status) {
  if (status == cudaSuccess) return {};
  // An error of one call would be found by the next one that looks.
  cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}

}  // namespace

bool is_built() {
  return true;
}

std::byte* allocate(int device, std::size_t bytes) {
  const current_device scope(device);
  void* memory = nullptr;
  // Not cudaMallocAsync: its memory belongs to a stream, and whoever imports this one frees it at a time of its own.
  const cudaError_t status = scope.status == cudaSuccess ? cudaMalloc(&memory, bytes) : scope.status;
  const std::string text = text_of(status);
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc{};
  if (!text.empty()) throw failure(text);
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) noexcept {
  // Waits for the device by itself. When the process ends, CUDA may be gone already, and the memory with it.
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
}

std::string wait(int device, void* stream) {
  const current_device scope(device);
  const bool is_there = scope.status == cudaSuccess;
  return text_of(is_there ? cudaStreamSynchronize(static_cast<cudaStream_t>(stream)) : scope.status);
}

#else

bool is_built() {
  return false;
}

std::byte* allocate(int, std::size_t) {
  throw std::bad_alloc{};
}

void release(std::byte*) noexcept {}

std::string wait(int, void*) {
  return {};
}

#endif

}  // namespace aft::python::gpu
