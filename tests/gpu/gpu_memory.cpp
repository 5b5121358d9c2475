// SPDX-License-Identifier: Apache-2.0
#include "gpu_memory.hpp"

#include <aft/core/errors.hpp>

#include <cuda_runtime_api.h>

#include <bit>
#include <new>
#include <string>
#include <vector>

namespace aft::test {

namespace {
// Locking pages takes longer than a small call: blocks are kept, by powers of two.
std::vector<void*>& kept(std::size_t bytes) {
  static std::vector<void*> blocks[64];
  return blocks[std::bit_width(bytes)];
}
std::size_t rounded(std::size_t bytes) {
  return std::bit_ceil(bytes < 256 ? std::size_t{256} : bytes);
}
}  // namespace

void* take_locked(std::size_t bytes) {
  auto& blocks = kept(rounded(bytes));
  if (!blocks.empty()) {
    void* const p = blocks.back();
    blocks.pop_back();
    return p;
  }
  void* p = nullptr;
  if (cudaHostAlloc(&p, rounded(bytes), cudaHostAllocDefault) != cudaSuccess) throw std::bad_alloc();
  return p;
}

void give_locked(void* p, std::size_t bytes) noexcept {
  kept(rounded(bytes)).push_back(p);
}

void finish_device_work() {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) throw device_error(std::string("the GPU's work failed: ") + cudaGetErrorName(status));
}

}  // namespace aft::test
