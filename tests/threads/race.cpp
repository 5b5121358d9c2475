// SPDX-License-Identifier: Apache-2.0
// A deliberate race, through the same parallel loop that the kernels use: ThreadSanitizer must report it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <aft/aft.hpp>

namespace {

/// Both threads are in the loop before either goes on: on a busy machine one had done all of it before the other came,
/// and nothing raced. Relaxed, so that it orders nothing; a team of one waits no longer than ten seconds.
void meet() {
  static std::atomic<int> here{0};
  thread_local bool came = false;
  if (came) return;
  came = true;
  here.fetch_add(1, std::memory_order_relaxed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (here.load(std::memory_order_relaxed) < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace

int main() {
  long sum = 0;
  aft::cpu_impl::parallel_for(100000, 2, [&sum](aft::index_t i, int) {
    meet();
    sum += i;
  });
  std::printf("%ld\n", sum);
  return 0;
}
