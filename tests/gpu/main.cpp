// SPDX-License-Identifier: Apache-2.0
// aft_gpu_check: the operators' tests on a real GPU, or timings; aft_gpu_gemm: the product of bfloat16 by itself.
//   aft_gpu_check [--no-tests] [--timings] [--only <part of a timing's name>] [--once] [--list]
//                 [--results <file> --stage <name>] [doctest options]
// --results appends what is found as lines of JSON, which name the stage. --once makes each call that would be timed
// once, for a profiler. --list names the shapes that are timed. Exit codes: 0 all is right, 1 a test failed or the
// device did, 2 nothing fitted the filter, 77 there is no GPU to check.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "ceilings.hpp"
#include "json_lines.hpp"
#if !defined(AFT_GPU_TESTS_ALONE)
#include "timings/timings.hpp"
#endif

namespace {

constexpr int failed = 1, fits_nothing = 2, no_gpu = 77;

struct wishes {
  bool tests = true, once = false, timings = false, list = false;
  const char* only = "";
  const char* results = nullptr;
  const char* stage = "";
  std::vector<char*> rest;
};

wishes read_arguments(int count, char** arguments) {
  wishes w;
  w.rest.push_back(arguments[0]);
  for (int i = 1; i < count; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(arguments[i], name) == 0; };
    if (is("--no-tests")) {
      w.tests = false;
    } else if (is("--once")) {
      w.once = true;
    } else if (is("--timings")) {
      w.timings = true;
    } else if (is("--list")) {
      w.list = true;
    } else if (is("--only") && i + 1 < count) {
      w.only = arguments[++i];
    } else if (is("--results") && i + 1 < count) {
      w.results = arguments[++i];
    } else if (is("--stage") && i + 1 < count) {
      w.stage = arguments[++i];
    } else {
      w.rest.push_back(arguments[i]);
    }
  }
  return w;
}

int run(const wishes& w) {
  if (w.results != nullptr) aft::gpu::open_lines(w.results, w.stage);
  aft::gpu::keep_scratch();
  if (w.tests) {
    setenv("AFT_TEST_ON_DEVICE", "1", 1);
    doctest::Context context(static_cast<int>(w.rest.size()), w.rest.data());
    const int result = context.run();
    if (result != 0 || context.shouldExit()) return result;
    if (aft::gpu::cases_run() == 0) {
      std::printf("no test fits the filter\n");
      return fits_nothing;
    }
  }
#if !defined(AFT_GPU_TESTS_ALONE)
  if (w.once) aft::gpu::call_each(w.only);
  if (w.timings && aft::gpu::write_timings(w.only) == 0) {
    std::printf("no shape has \"%s\" in its name\n", w.only);
    return fits_nothing;
  }
#endif
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const wishes w = read_arguments(count, arguments);
#if !defined(AFT_GPU_TESTS_ALONE)
  if (w.list) {
    aft::gpu::list_shapes();
    return 0;
  }
#endif
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("aft_gpu_check: no CUDA device: %s\n", cudaGetErrorString(status));
    return no_gpu;
  }
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return failed;
  std::printf("aft_gpu_check: %s, compute capability %d.%d\n", device.name, device.major, device.minor);
  std::fflush(stdout);
  try {
    return run(w);
  } catch (const std::exception& error) {
    std::printf("aft_gpu_check: %s\n", error.what());
    return failed;
  }
}
