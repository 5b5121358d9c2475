// SPDX-License-Identifier: Apache-2.0
// A deliberate race, through the same parallel loop that the kernels use: ThreadSanitizer must report it. Each of two
// items waits until the other has begun, since on a busy machine one thread may do all of a loop before the other
// comes, and nothing races; and again and again, until it was seen.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <aft/aft.hpp>

int main() {
  long sum = 0;
  std::atomic<int> begun{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (int round = 1; round <= 50; ++round) {
    aft::cpu_impl::parallel_for(2, 2, [&](aft::index_t i, int) {
      // Relaxed, so that it orders nothing.
      begun.fetch_add(1, std::memory_order_relaxed);
      while (begun.load(std::memory_order_relaxed) < 2 * round && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
      for (int repeat = 0; repeat < 1000; ++repeat) sum += i + 1;
    });
  }
  std::printf("%ld\n", sum);
  return 0;
}
