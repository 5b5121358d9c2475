// SPDX-License-Identifier: Apache-2.0
#include "ceilings.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cublas.hpp"

namespace aft::gpu {

namespace {

void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
class event {
 public:
  event() { require(cudaEventCreate(&event_), "an event"); }
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() { (void)cudaEventDestroy(event_); }
  void record(cudaStream_t stream) { require(cudaEventRecord(event_, stream), "recording"); }
  float since(const event& start) const {
    float ms = 0;
    require(cudaEventSynchronize(event_), "waiting for the device");
    require(cudaEventElapsedTime(&ms, start.event_, event_), "elapsed time");
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Device memory of one measurement.
struct block {
  explicit block(std::size_t bytes) : data(take_device(bytes)) {}
  block(const block&) = delete;
  block& operator=(const block&) = delete;
  ~block() { give_device(data); }
  void* data;
};

/// Holds the device back while the host hands it work, so that no figure has the host's time in it: a call is several
/// launches, which take the host longer than short kernels run. It lets go by itself where the work does not fit into
/// the queue, and the host waits for room.
class gate {
 public:
  void close(cudaStream_t stream) {
    open_ = false;
    until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    require(cudaLaunchHostFunc(stream, wait, this), "a gate before the work");
  }
  /// Whether all of it had been handed over by then.
  bool open() {
    open_ = true;
    return std::chrono::steady_clock::now() < until_;
  }

 private:
  static void wait(void* self) {
    const gate& g = *static_cast<const gate*>(self);
    while (!g.open_ && std::chrono::steady_clock::now() < g.until_) std::this_thread::yield();
  }
  std::atomic<bool> open_{true};
  std::chrono::steady_clock::time_point until_;
};

}  // namespace

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  require(cudaGetDevice(&device), "the current device");
  require(cudaGetDeviceProperties(&properties, device), "its properties");
  return properties.name;
}

void keep_scratch() {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  require(cudaGetDevice(&device), "the current device");
  require(cudaDeviceGetDefaultMemPool(&pool, device), "its memory pool");
  require(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "the pool's threshold");
}

void* take_device(std::size_t bytes) {
  void* p = nullptr;
  require(cudaMalloc(&p, bytes), "device memory");
  return p;
}
void give_device(void* p) noexcept {
  (void)cudaFree(p);
}
void finish_device() {
  require(cudaDeviceSynchronize(), "the device");
}
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
  // Of pageable memory it may return before the last part is there, and other streams do not wait for it.
  require(cudaDeviceSynchronize(), "copying to the device");
}

timing median_milliseconds(const std::function<void(std::size_t, void*)>& work) {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  event start, stop;
  static gate held;  // outlives what is in the queue when the work throws
  std::vector<float> times;
  float total = 0;
  timing result;
  std::size_t round = 0;
  for (int sample = 0; sample < 200; ++sample) {
    held.close(stream);
    start.record(stream);
    for (std::size_t i = 0; i < result.calls; ++i) work(round++, stream);
    stop.record(stream);
    const bool in_time = held.open();
    const float ms = stop.since(start);
    // The first samples bring code and memory into place. Several short calls between two events, whose own time is
    // then nothing beside them.
    if (sample == 1) result.calls = std::clamp<std::size_t>(static_cast<std::size_t>(4.0f / std::max(ms, 0.1f)), 1, 16);
    if (sample < 2) continue;
    if (!in_time) ++result.late;
    times.push_back(ms / static_cast<float>(result.calls));
    total += ms;
    if (times.size() >= 5 && total > 500.0f) break;
  }
  require(cudaStreamDestroy(stream), "the stream");
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  result.ms = static_cast<double>(times[times.size() / 2]);
  result.samples = times.size();
  return result;
}

double copy_bytes_per_second() {
  constexpr std::size_t bytes = std::size_t{1} << 30;
  const block from(bytes), to(bytes);
  const timing copy = median_milliseconds([&](std::size_t, void* stream) {
    require(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
            "a copy");
  });
  return 2.0 * static_cast<double>(bytes) / copy.ms * 1e3;
}

namespace {

/// Numbers in [-1, 1]. A card draws less power on zeros and multiplies them up to a sixth faster than real data.
void fill_with_numbers(void* to, std::size_t bytes, bool bfloat16) {
  std::vector<std::uint32_t> block(std::size_t{1} << 20);
  std::uint32_t random = 12345;
  const auto next = [&] { return random = random * 1664525u + 1013904223u; };
  // Sign, an exponent of 2^-1 or 2^-2, and a mantissa: the upper half of a float is a bfloat16.
  const auto number = [&] { return (next() & 0x807fffffu) | ((random >> 9 & 1u) != 0 ? 0x3f000000u : 0x3e800000u); };
  for (std::uint32_t& x : block) x = bfloat16 ? (number() >> 16) | (number() & 0xffff0000u) : number();
  const std::size_t size = block.size() * sizeof(block[0]);
  for (std::size_t at = 0; at < bytes; at += size)
    copy_to_device(static_cast<char*>(to) + at, block.data(), std::min(size, bytes - at));
}

}  // namespace

double gemm_milliseconds(bool bfloat16, std::int64_t T, std::int64_t columns) {
  std::string why;
  const cublas* const library = cublas::loaded(why);
  if (library == nullptr) {
    // Without a roof of products the times are still worth having.
    static const bool said = std::printf("no cuBLAS to compare with: %s\n", why.c_str()) > 0;
    (void)said;
    return 0;
  }
  const auto size = static_cast<std::size_t>(bfloat16 ? 2 : 4);
  const auto rows = static_cast<std::size_t>(T), wide = static_cast<std::size_t>(columns);
  const block a(rows * rows * size), b(rows * wide * size), c(rows * wide * size);
  fill_with_numbers(a.data, rows * rows * size, bfloat16);
  fill_with_numbers(b.data, rows * wide * size, bfloat16);
  return median_milliseconds([&](std::size_t, void* stream) {
           library->multiply(bfloat16, T, columns, a.data, b.data, c.data, stream);
         })
      .ms;
}

}  // namespace aft::gpu
