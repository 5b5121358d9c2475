// SPDX-License-Identifier: Apache-2.0
/// @file handover.hpp  How far the processors of two threads are from each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include <omp.h>

namespace aft_bench {

/// Nanoseconds in which a cache line goes between the first two threads of a team, the least of four tries; 0 with one
/// processor. Virtual processors move: where two of them share a third-level cache it takes 40 ns on a Zen 5, where
/// they do not 175, and a stream over 64 MiB, half of which then lies in a cache of each, is twice as fast.
inline double handover() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  using clock = std::chrono::steady_clock;
  constexpr int turns = 500, tries = 4;
  alignas(64) std::atomic<int> turn{0};
  // Threads that share one processor take turns on it.
  const auto wait_for = [&turn](int value) {
    for (int spins = 1; turn.load(std::memory_order_acquire) != value; ++spins) {
      if (spins % 10000 == 0) std::this_thread::yield();
    }
  };
  double least = std::numeric_limits<double>::infinity();
  // A team of OpenMP's: its threads are where those of the contestants are.
#pragma omp parallel num_threads(2)
  if (omp_get_num_threads() < 2) {
    least = 0;
  } else if (omp_get_thread_num() == 1) {
    for (int i = 0; i < turns * tries; ++i) {
      wait_for(2 * i + 1);
      turn.store(2 * i + 2, std::memory_order_release);
    }
  } else {
    for (int i = 0; i < turns * tries;) {
      const clock::time_point start = clock::now();
      for (const int end = i + turns; i < end; ++i) {
        turn.store(2 * i + 1, std::memory_order_release);
        wait_for(2 * i + 2);
      }
      least = std::min(least, std::chrono::duration<double, std::nano>(clock::now() - start).count() / (2 * turns));
    }
  }
  return least;
}

}  // namespace aft_bench
