// SPDX-License-Identifier: Apache-2.0
// aft_gpu_check: the operators' tests on a real GPU, then timings.
//   aft_gpu_check [--no-tests] [--timings <file.json>] [--once] [--only <part of a timing's name>] [doctest options]
// --once makes each call that would be timed once, for a profiler.
// Exit codes: 0 all is right, 1 a test failed, 77 there is no GPU to check.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "timings.hpp"

int main(int count, char** arguments) {
  constexpr int no_gpu = 77;
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("aft_gpu_check: no CUDA device: %s\n", cudaGetErrorString(status));
    return no_gpu;
  }
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 1;
  std::printf("aft_gpu_check: %s, compute capability %d.%d\n", device.name, device.major, device.minor);

  bool tests = true, once = false;
  const char* timings = nullptr;
  const char* only = "";
  std::vector<char*> rest{arguments[0]};
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--no-tests") == 0) {
      tests = false;
    } else if (std::strcmp(arguments[i], "--once") == 0) {
      once = true;
    } else if (std::strcmp(arguments[i], "--timings") == 0 && i + 1 < count) {
      timings = arguments[++i];
    } else if (std::strcmp(arguments[i], "--only") == 0 && i + 1 < count) {
      only = arguments[++i];
    } else {
      rest.push_back(arguments[i]);
    }
  }
  if (tests) {
    setenv("AFT_TEST_ON_DEVICE", "1", 1);
    doctest::Context context(static_cast<int>(rest.size()), rest.data());
    const int result = context.run();
    if (result != 0 || context.shouldExit()) return result;
  }
  if (once) aft::gpu::call_each(only);
  if (timings != nullptr) aft::gpu::write_timings(timings, only);
  return 0;
}
