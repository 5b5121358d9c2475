// SPDX-License-Identifier: Apache-2.0
// Calls the device from a file that nvcc never sees. Without a GPU the call must say so, by the call's name.
#include <aft/aft.hpp>

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "calls.hpp"

namespace {

void call_from_host_file(const float* x, float* y) {
  const aft::tensor_view<const float, 3, aft::device_space> in{x, {1, 1, 1}};
  aft::simple(in, in, in, aft::tensor_view<float, 3, aft::device_space>{y, {1, 1, 1}});
}

void continue_from_host_file(const float* x, float* y, void* slot) {
  const aft::stream_view<aft::device_space> st{aft::stream_spec::simple<float>(1, 1), slot, 1};
  aft::reset(aft::cuda{}, st);
  const aft::tensor_view<const float, 3, aft::device_space> in{x, {1, 1, 1}};
  aft::simple(in, in, in, aft::tensor_view<float, 3, aft::device_space>{y, {1, 1, 1}},
              aft::options{.causal = true, .stream = st});
}

/// `op` is the call that comes first.
template <class F>
bool works(F call, const char* op) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    float x = 1, y = 7;
    alignas(64) static std::byte slot[1024];
    try {
      call(&x, &y, slot);
    } catch (const aft::device_error& e) {
      std::puts(e.what());
      return std::strstr(e.what(), op) != nullptr && std::strstr(e.what(), "cudaError") != nullptr && y == 7;
    }
    return false;
  }
  float *x = nullptr, *y = nullptr;
  void* slot = nullptr;
  const float one = 1;
  float got = 0;
  if (cudaMalloc(reinterpret_cast<void**>(&x), 4) != cudaSuccess) return false;
  if (cudaMalloc(reinterpret_cast<void**>(&y), 4) != cudaSuccess) return false;
  if (cudaMalloc(&slot, 1024) != cudaSuccess) return false;
  (void)cudaMemcpy(x, &one, 4, cudaMemcpyHostToDevice);
  call(x, y, slot);
  (void)cudaMemcpy(&got, y, 4, cudaMemcpyDeviceToHost);
  return std::fabs(got - 0.7310586f) < 1e-6f;
}

}  // namespace

int main() {
  const auto without_slot = [](auto call) { return [call](const float* x, float* y, void*) { call(x, y); }; };
  const bool host =
      works(without_slot(call_from_host_file), "aft::simple") & works(continue_from_host_file, "aft::reset");
  const bool device =
      works(without_slot(call_from_cuda_file), "aft::simple") & works(continue_from_cuda_file, "aft::reset");
  std::printf("from .cpp: %s, from .cu: %s\n", host ? "right" : "wrong", device ? "right" : "wrong");
  return host && device ? 0 : 1;
}
