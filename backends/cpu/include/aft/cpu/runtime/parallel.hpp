// SPDX-License-Identifier: Apache-2.0
/// @file runtime/parallel.hpp  The only place that knows OpenMP.
#pragma once

#include <aft/core/executors.hpp>
#include <aft/core/float_environment.hpp>
#include <aft/math/integers.hpp>

#include "function_ref.hpp"

#if defined(_OPENMP)
#if !__has_include(<omp.h>)
#error "aft: -fopenmp, and no <omp.h>: install the compiler's OpenMP (Debian, clang: libomp-dev) or leave the flag out"
#include "nothing of aft is compiled, see the error above"
#endif
#include <omp.h>
#endif

namespace aft::inline AFT_ISA::cpu_impl {

/// An executor with which a call takes its memory, gives it back and returns: what it would take is learned so before
/// anything is written. Its number of threads is negative, which no caller's is.
inline cpu trial_of(const cpu& exec, int threads) {
  cpu trial = exec;
  trial.threads = -threads;
  return trial;
}
inline bool is_trial(const cpu& exec) {
  return exec.threads < 0;
}

/// More than any machine has. Some times as many is still an int.
inline constexpr int most_threads = 1 << 16;

/// The most threads that a call may use.
inline int thread_count(const cpu& exec) {
  if (exec.threads != 0) return min_of(is_trial(exec) ? -exec.threads : exec.threads, most_threads);
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Multiply-adds that another thread must find to be worth starting: some 36 us of a core's peak, where a team starts
/// in 2 to 5 us, in 12 while other guests are busy, and a call takes several teams. With half of it two threads took 28
/// to 39 us for a window of 63 on 256 x 64 where one takes 29; with a quarter 39 to 45 for gradients of 64 x 64 where
/// one took 42 to 55, and 120 in a race with other numbers of threads (Zen 5, 2026-11). The tests set it to 1, to have
/// threads on small sizes.
inline constexpr double parallel_grain = static_cast<double>(AFT_PARALLEL_GRAIN);

/// `exec` with no more threads than so many multiply-adds keep busy.
inline cpu limit_threads(const cpu& exec, double work) {
  cpu limited = exec;
  limited.threads = thread_count(exec);
  const double useful = work / parallel_grain + 1;
  if (useful < limited.threads) limited.threads = static_cast<int>(useful);
  if (is_trial(exec)) limited.threads = -limited.threads;
  return limited;
}

/// The items that a thread of a team begins with: every so many-th one, so that those which are worked on at the same
/// time lie side by side, or as many as fall to it in a row, so that threads do not write side by side.
enum class item_order { spread, runs };

#if defined(_OPENMP)
/// Every step-th item from `next` on, in a cache line of its own.
struct alignas(64) item_share {
  index_t next, step, end;
  index_t take() {
    index_t item;
#pragma omp atomic capture
    {
      item = next;
      next += step;
    }
    return item;
  }
};
/// Threads beyond them share theirs with others.
inline constexpr int most_shares = 64;

/// What a thread of a team does: the items of its own share, and then what is left of the others'.
AFT_COMPILE_ONCE inline void run_shares(item_share* shares, int count, int first, int thread,
                                        function_ref<void(index_t, int)> body) {
  for (int i = 0; i < count; ++i) {
    item_share& share = shares[(first + i) % count];
    for (index_t item; (item = share.take()) < share.end;) body(item, thread);
  }
}

/// Apart from loops of one thread, which are nested in each other: the shares take 4 KiB of stack.
AFT_COMPILE_ONCE inline void run_team(index_t n, int team, item_order order, function_ref<void(index_t, int)> body) {
  const int count = min_of(team, most_shares);
  item_share shares[most_shares];
  for (int i = 0; i < count; ++i) {
    shares[i] =
        order == item_order::spread ? item_share{i, count, n} : item_share{n * i / count, 1, n * (i + 1) / count};
  }
#pragma omp parallel num_threads(team)
  {
    const float_environment own;
    run_shares(shares, count, omp_get_thread_num() * count / omp_get_num_threads(), omp_get_thread_num(), body);
  }
}
#endif

// A compiler that knew `body` here would write it out again for a team and for a single thread.
AFT_COMPILE_ONCE inline void run_items(index_t n, [[maybe_unused]] int threads, [[maybe_unused]] item_order order,
                                       function_ref<void(index_t, int)> body) {
#if defined(_OPENMP)
  if (threads > 1 && n > 1) return run_team(n, n < threads ? static_cast<int>(n) : threads, order, body);
#endif
  for (index_t i = 0; i < n; ++i) body(i, 0);
}

/// Runs body(i, thread) for 0 <= i < n with thread < threads. Each thread begins with items of its own, the same in
/// every call, so that caches which threads do not share keep what they hold, and helps the others when it is done
/// with them: no result may depend on which thread runs what. `simple` takes 0.77 of the time by it on 32 x 197 x 384
/// and 0.78 on 2 x 3072 x 256, with its items spread 0.83 and 0.79, on two complexes of cores. On one complex it takes
/// as long with runs and 1.02 to 1.09 with its items spread. strict(32) with runs takes 0.89 of what it does spread on
/// 8 x 1024 x 512 and 0.91 on 2 x 3072 x 256, on one complex 0.95 and 0.97 (Zen 5, 2026-11). The body must not throw:
/// scratch is taken before.
template <class Body>
inline void parallel_for(index_t n, int threads, item_order order, const Body& body) {
  run_items(n, threads, order, function_ref<void(index_t, int)>(body));
}
template <class Body>
inline void parallel_for(index_t n, int threads, const Body& body) {
  parallel_for(n, threads, item_order::spread, body);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
