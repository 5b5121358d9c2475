// SPDX-License-Identifier: Apache-2.0
/// @file packed/schedule.hpp  Which thread runs which sequence of a packed call, and the memory that they run in.
///
/// A sequence is a call of its own, whose bits depend neither on threads nor on what runs beside it; so long sequences
/// are run by all threads, one after the other, and short ones by a thread each, the longest first. Where the line is
/// may depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <new>

#include <aft/core/problem/sequences.hpp>

#include "../runtime/arena.hpp"
#include "../runtime/parallel.hpp"
#include "../runtime/workspace.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The multiply-adds of a problem, about.
using work_estimate = double (*)(const problem&);

/// The sequences that there is something to do for, those with most work first.
struct sequence_order {
  struct entry {
    double work;
    index_t n, queries, keys;
  };
  struct more_work {
    bool operator()(const entry& a, const entry& b) const { return a.work > b.work || (a.work == b.work && a.n < b.n); }
  };

  entry* entries = nullptr;
  index_t count = 0;
  double work = 0;

  const entry& at(index_t i) const { return entries[i]; }

  /// How many of the first ones all threads run together: where one would take a thread half as long as its share of
  /// what is left, or longer, others would wait for it in the end.
  index_t shared_by(int threads) const {
    if (threads == 1) return 0;
    double left = work;
    index_t i = 0;
    for (; i < count && 2 * threads * entries[i].work > left; ++i) left -= entries[i].work;
    return i;
  }
};

/// `keys_count`: whether there is something to do for keys without queries, as gradients of them.
[[gnu::cold]] AFT_COMPILE_ONCE inline sequence_order order_sequences(const problem& p, bool keys_count,
                                                                     work_estimate estimate, scratch& memory) {
  sequence_order order;
  order.entries = memory.take<sequence_order::entry>(p.packed->count);
  for (index_t n = 0; n < p.packed->count; ++n) {
    const problem one = sequence_of(p, n);
    if (one.Tq == 0 && !(keys_count && one.Tk > 0)) continue;
    // A call costs something whatever its size: some thousand multiply-adds.
    const double work = estimate(one) + 4096;
    order.entries[order.count++] = {work, n, one.Tq, one.Tk};
    order.work += work;
  }
  std::sort(order.entries, order.entries + order.count, sequence_order::more_work{});
  return order;
}

/// Runs entry i of an order; `slot` is less than the number of threads, and no two that run at a time have the same.
using sequence_job = function_ref<void(index_t i, int slot, const cpu& exec)>;

/// One pass over all sequences.
class sequence_schedule {
 public:
  /// `parts` = 0: no entry waits for another one. Else entries i, i + parts, i + 2 parts and so on run in this order.
  sequence_schedule(const sequence_order& order, index_t parts, const cpu& exec)
      : order_(&order),
        parts_(parts),
        exec_(&exec),
        threads_(thread_count(exec)),
        shared_(parts == 1 ? order.count : order.shared_by(threads_)) {}

  int threads() const { return threads_; }
  index_t shared() const { return shared_; }
  std::size_t bytes() const { return max_of(shared_bytes_, static_cast<std::size_t>(threads_) * own_bytes_); }

  /// Learns by trials how much memory the job takes, and does with fewer threads where it were more than `room`. After
  /// several calls it knows what the largest of these jobs takes.
  [[gnu::cold]] AFT_COMPILE_ONCE void measure(std::size_t room, const sequence_job& job) {
    int team = threads_;
    if (shared_ > 0) {
      team = threads_within(room, threads_, [&](int threads) { return peak_of(0, threads, job); });
      shared_bytes_ = max_of(shared_bytes_, largest_peak(0, shared_, team, job));
    }
    if (shared_ < order_->count) {
      own_bytes_ = max_of(own_bytes_, largest_peak(shared_, order_->count, 1, job));
      team = threads_within(room, team, [&](int threads) { return static_cast<std::size_t>(threads) * own_bytes_; });
    }
    threads_ = team;
  }

  /// `room` holds bytes().
  [[gnu::cold]] AFT_COMPILE_ONCE void run(std::byte* room, const sequence_job& job) const {
    for (index_t i = 0; i < shared_; ++i) run_one(i, 0, threads_, room, shared_bytes_, job);
    std::atomic<bool> failed = false;
    const auto guarded = [&](index_t i, int thread) {
      // The region that threads share lets no exception out.
      try {
        run_one(i, thread, 1, room + static_cast<std::size_t>(thread) * own_bytes_, own_bytes_, job);
      } catch (const std::bad_alloc&) {
        failed.store(true);
      }
    };
    const index_t left = order_->count - shared_;
    const index_t items = parts_ == 0 ? left : min_of(left, parts_);
    parallel_for(items, threads_, [&](index_t item, int thread) {
      const index_t step = parts_ == 0 ? order_->count : parts_;
      for (index_t i = shared_ + item; i < order_->count; i += step) guarded(i, thread);
    });
    if (failed.load()) throw std::bad_alloc();
  }

 private:
  void run_one(index_t i, int slot, int threads, std::byte* room, std::size_t bytes, const sequence_job& job) const {
    // The trials have seen every length, and were rounded up. Should a sequence take more all the same, it is not
    // the caller's resource that is asked, as that may know one thread only.
    arena own(room, bytes, std::pmr::new_delete_resource());
    job(i, slot, cpu{threads, &own});
  }

  [[gnu::cold, gnu::noinline]] std::size_t peak_of(index_t i, int threads, const sequence_job& job) const {
    arena counter(nullptr, 0, exec_->memory != nullptr ? exec_->memory : std::pmr::new_delete_resource());
    job(i, 0, trial_of(cpu{0, &counter}, threads));
    return counter.peak();
  }

  /// What a call takes grows with its length but where it changes its ways, as conv does at 256 positions: so every
  /// length is tried. Sequences of one length are neighbours, as they are of the same work.
  [[gnu::cold, gnu::noinline]] std::size_t largest_peak(index_t first, index_t end, int threads,
                                                        const sequence_job& job) const {
    std::size_t most = 0;
    index_t queries = -1, keys = -1;
    for (index_t i = first; i < end; ++i) {
      const sequence_order::entry& e = order_->at(i);
      if (e.queries == queries && e.keys == keys) continue;
      queries = e.queries;
      keys = e.keys;
      most = max_of(most, peak_of(i, threads, job));
    }
    return round_up(most + most / 4, std::size_t{4096});
  }

  const sequence_order* order_;
  index_t parts_;
  const cpu* exec_;
  int threads_;
  index_t shared_;
  std::size_t shared_bytes_ = 0, own_bytes_ = 0;
};

/// One sequence by one of the engines.
using sequence_gradients = function_ref<void(const backward_problem&, const cpu&)>;

/// What arenas may hold: tile buffers, without what else is held of them, and copies of the caller's arrays.
template <class C>
std::size_t room_of(const problem& p, std::size_t held) {
  const auto array = static_cast<std::size_t>((p.Tq + p.Tk) * p.d) * sizeof(C);
  return tile_bytes - min_of(held, tile_bytes) + 4 * array;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
