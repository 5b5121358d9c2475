// SPDX-License-Identifier: Apache-2.0
// Which thread runs what of a parallel loop, and where threads' buffers lie.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <thread>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;
using aft::cpu_impl::item_order;

#if defined(_OPENMP)
/// False if `ready` does not come true: then a thread that was asked for is missing.
template <class Ready>
bool wait_for(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// The thread of every item of a loop in which `first` and `second` run at the same time.
std::vector<int> threads_of(index_t n, item_order order, index_t first, index_t second) {
  std::vector<int> thread_of(static_cast<std::size_t>(n), -1);
  std::atomic<int> begun{0};
  std::atomic<bool> met{true};
  aft::cpu_impl::parallel_for(n, 2, order, [&](index_t i, int thread) {
    thread_of[static_cast<std::size_t>(i)] = thread;
    if (i != first && i != second) return;
    ++begun;
    if (!wait_for([&] { return begun == 2; })) met = false;
  });
  CHECK(met);
  return thread_of;
}
#endif

}  // namespace

TEST_CASE("parallel_for: every item once, by a thread of the team, for any number of threads") {
  for (const item_order order : {item_order::spread, item_order::runs}) {
    // No wider than support/main.cpp prepares the leak checker for.
    for (const int threads : {1, 2, 3, 7, 16}) {
      for (const index_t n : {0, 1, 2, 3, 63, 64, 65, 1000}) {
        std::vector<std::atomic<int>> times(static_cast<std::size_t>(n));
        std::atomic<bool> within{true};
        aft::cpu_impl::parallel_for(n, threads, order, [&](index_t i, int thread) {
          ++times[static_cast<std::size_t>(i)];
          if (thread < 0 || thread >= threads || thread >= n) within = false;
        });
        CAPTURE(threads);
        CAPTURE(n);
        bool once = true;
        for (const std::atomic<int>& t : times) once = once && t == 1;
        CHECK(once);
        CHECK(within);
      }
    }
  }
}

#if defined(_OPENMP)
TEST_CASE("parallel_for: threads begin with items of their own, in every call") {
  for (int call = 0; call < 20; ++call) {
    const std::vector<int> spread = threads_of(4, item_order::spread, 0, 1);
    CHECK(spread[0] == 0);
    CHECK(spread[1] == 1);
    const std::vector<int> runs = threads_of(4, item_order::runs, 0, 2);
    CHECK(runs[0] == 0);
    CHECK(runs[2] == 1);
  }
}

TEST_CASE("parallel_for: who is done helps a thread that is held up") {
  for (const item_order order : {item_order::spread, item_order::runs}) {
    constexpr index_t n = 100;
    // The first item of thread 1.
    const index_t held = order == item_order::spread ? 1 : n / 2;
    std::atomic<index_t> done{0};
    std::atomic<bool> helped{true};
    aft::cpu_impl::parallel_for(n, 2, order, [&](index_t i, int) {
      if (i == held && !wait_for([&] { return done == n - 1; })) helped = false;
      ++done;
    });
    CHECK(helped);
    CHECK(done == n);
  }
}
#endif

TEST_CASE("scratch: buffers of threads lie apart, are counted, and fit what was counted") {
  std::pmr::monotonic_buffer_resource resource;
  const aft::cpu exec{.memory = &resource};
  constexpr index_t page = 4096 / sizeof(float);
  for (const int threads : {1, 2, 5, 64}) {
    for (const index_t n : {index_t{0}, index_t{16}, index_t{1000}, index_t{1} << 18}) {
      aft::cpu_impl::scratch memory(exec);
      aft::cpu_impl::per_thread<float> all;
      float* behind = nullptr;
      const auto lay_out = [&](aft::cpu_impl::scratch& from) {
        all = from.take_each<float>(n, threads);
        behind = from.take<float>(1);
      };
      memory.take_at_once(aft::cpu_impl::function_ref<void(aft::cpu_impl::scratch&)>(lay_out));
      CAPTURE(threads);
      CAPTURE(n);
      CHECK(all.of(0) == all.first);
      if (n == 0) continue;
      // All of it can be written, and nothing of it is another's.
      for (int i = 0; i < threads; ++i)
        for (index_t x = 0; x < n; ++x) all.of(i)[x] = static_cast<float>(i);
      *behind = -1;
      for (int i = 0; i < threads; ++i) {
        CHECK(all.of(i)[0] == static_cast<float>(i));
        CHECK(all.of(i)[n - 1] == static_cast<float>(i));
        if (i > 0) CHECK(all.of(i) - (all.of(i - 1) + n) >= page);
      }
    }
  }
}
