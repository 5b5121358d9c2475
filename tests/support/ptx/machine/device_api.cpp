// SPDX-License-Identifier: Apache-2.0
// As much of CUDA's runtime as a program of ours asks for, on the host's memory: what nvcc compiled for the host runs
// unchanged and launches translated kernels. A program links this in place of CUDA's own library.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <device_emulator.hpp>

#include "launch.hpp"
#include "spaces.hpp"

namespace {

using namespace aft::ptx;

constexpr std::size_t ordinary_shared = 48 << 10, most_shared = 227 << 10, alignment = 256;

/// Names of kernels by the host's functions, and what they may have of shared memory.
struct known_kernel {
  std::string name;
  std::size_t shared = ordinary_shared;
};
std::map<const void*, known_kernel>& kernels() {
  static std::map<const void*, known_kernel> all;
  return all;
}

cudaError_t allocate(void** p, std::size_t bytes) {
  *p = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  aft::emulator::fill_poison(*p, bytes);
  global_memory::add(*p, bytes);
  return cudaSuccess;
}

cudaError_t release(void* p) {
  if (p == nullptr) return cudaSuccess;
  if (!global_memory::remove(p)) return cudaErrorInvalidValue;
  ::operator delete (p, std::align_val_t{alignment});
  return cudaSuccess;
}

}  // namespace

// What compiled files register before main(), and what stands for a launch by <<<>>>, which nobody uses.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*);

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels()[host].name = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return cudaErrorNotSupported;
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t) {
  const auto known = kernels().find(host);
  if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
  const kernel_entry* const kernel = find_kernel(known->second.name);
  if (kernel == nullptr) throw aft::emulator::kernel_error("no translation of " + known->second.name);
  if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 || grid.x == 0 ||
      block.x > static_cast<unsigned>(kernel->threads) || shared + kernel->shared_bytes > known->second.shared)
    return cudaErrorInvalidConfiguration;
  launch(*kernel, grid.x, static_cast<int>(block.x), arguments, shared);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  const auto known = kernels().find(host);
  if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > most_shared)
    return cudaErrorInvalidValue;
  known->second.shared = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  const auto known = kernels().find(host);
  const kernel_entry* const kernel = known == kernels().end() ? nullptr : find_kernel(known->second.name);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  *attributes = {};
  attributes->maxThreadsPerBlock = kernel->threads;
  attributes->sharedSizeBytes = kernel->shared_bytes;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  return allocate(p, bytes);
}
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  return allocate(p, bytes);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  return release(p);
}
cudaError_t cudaFree(void* p) {
  return release(p);
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
/// Few multiprocessors, so that blocks which take more than one tile are seen to; the emulator has as many.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMultiProcessorCount) return cudaErrorInvalidValue;
  *value = 3;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  *attributes = {};
  attributes->type = global_memory::holds(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t) {
  return "of the emulated device";
}
}
