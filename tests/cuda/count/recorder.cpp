// SPDX-License-Identifier: Apache-2.0
// What calls of the sizes that are timed on a GPU would launch there, on a machine that has none: the launch code runs
// as it is, above a CUDA runtime that notes launches and scratch and does nothing.
//
// recorder warpgroups|mma   A line of JSON for each call, then one for each launch, allocation and clearing that it
// makes. The device has 132 multiprocessors, and with `warpgroups` the code for sm_90a.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "ceilings.hpp"
#include "json_lines.hpp"
#include "timings/timings.hpp"

namespace {

constexpr int multiprocessors = 132;
constexpr std::uintptr_t alignment = 256;
constexpr int product_threads = 384;  // gemm_wgmma's; its empty twin on other devices allows fewer
bool has_warpgroups = false;
bool listens = false;  // between a call's begin and its end, not while its slots are made

std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> all;
  return all;
}

/// Addresses that nobody may read. Each is used once, so that no two tensors are taken for one.
void* next_address(std::size_t bytes) {
  static std::uintptr_t next = std::uintptr_t{1} << 40;
  const std::uintptr_t at = next;
  next += (bytes + alignment - 1) / alignment * alignment;
  return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr): never dereferenced
}

}  // namespace

// What the timings ask of the device; nothing is timed here.
namespace aft::gpu {

std::string device_name() {
  return {};
}
void* take_device(std::size_t bytes) {
  return next_address(bytes);
}
void give_device(void*) noexcept {}
void finish_device() {}
void copy_to_device(void*, const void*, std::size_t) {}
timing median_milliseconds(const std::function<void(std::size_t, void*)>&) {
  return {};
}
double copy_bytes_per_second() {
  return 0;
}
double gemm_milliseconds(bool, std::int64_t, std::int64_t) {
  return 0;
}
void write_line(const std::string&) {}
std::string quoted(std::string_view text) {
  return '"' + std::string(text) + '"';
}

}  // namespace aft::gpu

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*);
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
  kernels()[host] = name;
}
// Stand for a launch by <<<>>>, which the library does not use.
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return cudaErrorNotSupported;
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void**, std::size_t shared, cudaStream_t) {
  const auto known = kernels().find(host);
  if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
  if (!listens) return cudaSuccess;
  std::printf("{\"kernel\": \"%s\", \"blocks\": %u, \"threads\": %u, \"dynamic\": %zu}\n", known->second.c_str(),
              grid.x, block.x, shared);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = has_warpgroups ? product_threads : 1;
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  *p = next_address(bytes);
  if (listens) std::printf("{\"scratch\": %zu}\n", bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void*, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t bytes, cudaStream_t) {
  if (listens) std::printf("{\"cleared\": %zu}\n", bytes);
  return cudaSuccess;
}
// A call that reads what the device computed would go on from nothing.
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaErrorNotSupported;
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
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMultiProcessorCount) return cudaErrorInvalidValue;
  *value = multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  *attributes = {};
  attributes->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "cudaError";
}
const char* cudaGetErrorString(cudaError_t) {
  return "of a device that is not there";
}
}

int main(int argc, char** argv) {
  const std::string device = argc == 2 ? argv[1] : "";
  if (device != "warpgroups" && device != "mma") {
    std::fputs("recorder warpgroups|mma\n", stderr);
    return 2;
  }
  has_warpgroups = device == "warpgroups";
  aft::gpu::call_each("", [](const aft::gpu::timed_call* call) {
    listens = call != nullptr;
    if (listens)
      std::printf("{\"case\": \"%s\", \"type\": \"%s\", \"pass\": \"%s\"}\n", call->name, call->type, call->pass);
  });
  return 0;
}
