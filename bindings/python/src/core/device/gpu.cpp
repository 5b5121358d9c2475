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
  /// Below 0 it stays what it is. An unknown device is an error of what is asked of it, which is looked at.
  explicit current_device(int device) : changed_(device >= 0 && cudaGetDevice(&before_) == cudaSuccess) {
    if (changed_) cudaSetDevice(device);
  }
  ~current_device() {
    if (changed_) cudaSetDevice(before_);
  }
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

 private:
  int before_ = 0;
  bool changed_;
};

}  // namespace

bool is_built() {
  return true;
}

std::byte* allocate(int device, std::size_t bytes) {
  const current_device scope(device);
  void* memory = nullptr;
  // Not cudaMallocAsync: its memory belongs to a stream, and whoever imports this one frees it at a time of its own.
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    // An error of one call would be found by the next one that looks.
    cudaGetLastError();
    throw std::bad_alloc{};
  }
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) noexcept {
  // Waits for the device by itself. When the process ends, CUDA may be gone already, and the memory with it.
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
}

std::string wait(int device, void* stream) {
  const current_device scope(device);
  const cudaError_t status = cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
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
