// SPDX-License-Identifier: Apache-2.0
// The C interface of aft::compiled on real device memory: every call beside the same one in C++, devices, graphs.
#include <doctest/doctest.h>

#include <aft/aft.h>

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "c_interface/call_memory.h"

// Called from C, through which no exception goes.
void* take_memory(std::size_t bytes) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, bytes) == cudaSuccess);
  return p;
}
void write_memory(void* to, const void* from, std::size_t bytes) {
  CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  // Of pageable memory it may return before the last part is on the device, and other streams do not wait for it.
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
void read_memory(void* to, const void* from, std::size_t bytes) {
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
}
void* stream_of_calls() {
  static cudaStream_t const stream = [] {
    cudaStream_t s = nullptr;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    return s;
  }();
  return stream;
}

namespace {

constexpr std::int64_t shape[] = {1, 300, 40};
constexpr std::size_t size = 300 * 40;

/// AFT-simple of a device's own memory, by the C interface.
struct simple_call {
  int device;
  float* memory = nullptr;  ///< k, v and y
  std::vector<float> numbers = std::vector<float>(3 * size);

  explicit simple_call(int id) : device(id) {
    int before = 0;
    REQUIRE(cudaGetDevice(&before) == cudaSuccess);
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    for (std::size_t i = 0; i < 2 * size; ++i) numbers[i] = std::sin(0.3F * static_cast<float>(i));
    memory = static_cast<float*>(take_memory(numbers.size() * sizeof(float)));
    write_memory(memory, numbers.data(), numbers.size() * sizeof(float));
    REQUIRE(cudaSetDevice(before) == cudaSuccess);
  }
  simple_call(const simple_call&) = delete;
  simple_call& operator=(const simple_call&) = delete;
  ~simple_call() { (void)cudaFree(memory); }

  aft_tensor tensor(std::size_t at) const {
    aft_tensor t{};
    t.data = memory + at * size;
    t.device = {2, device};
    t.ndim = 3;
    t.dtype = {2, 32, 1};
    t.shape = shape;
    return t;
  }
  int run(void* stream) const {
    const aft_tensor k = tensor(0), v = tensor(1), y = tensor(2);
    aft_options o{};
    o.size = sizeof o;
    o.causal = 1;
    o.gate = AFT_GATE_NONE;
    o.cuda_stream = stream;
    return aft_simple(nullptr, &k, &v, &y, &o);
  }
  std::vector<float> result() const {
    std::vector<float> y(size);
    REQUIRE(cudaMemcpy(y.data(), memory + 2 * size, size * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
    return y;
  }
  void clear() { write_memory(memory, numbers.data(), numbers.size() * sizeof(float)); }
};

}  // namespace

TEST_CASE("gpu, C: every call has the bits of C++") {
  CHECK(failed_calls() == 0);
}

TEST_CASE("gpu, C: the first row of a causal average is its value, and a graph has the bits of the call") {
  simple_call c(0);
  REQUIRE(c.run(stream_of_calls()) == AFT_OK);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::vector<float> direct = c.result();
  for (std::size_t i = 0; i < 40; ++i) CHECK(direct[i] == doctest::Approx(c.numbers[size + i]).epsilon(1e-5));
  c.clear();
  const auto stream = static_cast<cudaStream_t>(stream_of_calls());
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  const int code = c.run(stream);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(code == AFT_OK);
  CHECK(c.result() != direct);
  cudaGraphExec_t instance = nullptr;
  REQUIRE(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(instance, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(c.result() == direct);
  CHECK(cudaGraphExecDestroy(instance) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("gpu, C: a device that is not there is CUDA's error, and the others work afterwards") {
  int count = 0, current = -1;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  simple_call c(0);
  c.device = count;
  CHECK(c.run(nullptr) == AFT_DEVICE_ERROR);
  CHECK(std::strstr(aft_last_error(), "cudaErrorInvalidDevice") != nullptr);
  CHECK(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  c.device = 0;
  CHECK(c.run(nullptr) == AFT_OK);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("gpu, C: tensors say the device, whichever is current; a stream has to be of it") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  simple_call first(0);
  REQUIRE(first.run(nullptr) == AFT_OK);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  // With one GPU each device is the first.
  for (int device = 0; device < count; ++device) {
    simple_call c(device);
    int current = -1;
    CHECK(c.run(nullptr) == AFT_OK);
    REQUIRE(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(c.result() == first.result());
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
#if CUDART_VERSION >= 12080
    CHECK((c.run(stream_of_calls()) == AFT_OK) == (device == 0));
#endif
  }
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
