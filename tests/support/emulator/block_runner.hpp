// SPDX-License-Identifier: Apache-2.0
/// @file block_runner.hpp  The threads of the block that runs: who waits where, and whose turn is next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "device_emulator.hpp"
#include "fiber.hpp"
#include "shared_memory.hpp"

namespace aft::emulator {

inline constexpr std::size_t most_shared_bytes = 227 * 1024;  // of a device that gives more when asked
inline constexpr std::size_t guard_bytes = 256;               // behind it, watched for writes
inline constexpr unsigned char poison[2] = {0xf5, 0x7f};
inline constexpr int nobody = -1;

struct copy {
  unsigned char* to;
  const unsigned char* from;
  int group;
};

struct thread {
  fiber* runs = nullptr;     ///< none before its first instruction
  std::vector<copy> copies;  ///< asynchronous ones that have not arrived, in order
  int groups = 0;            ///< of copies, committed so far
};

/// Threads that wait for each other.
struct meeting {
  int waiting = 0;
  bool apart = false;  ///< two places
  place where{}, other{};

  void join(const place& at) {
    if (waiting++ == 0) {
      where = at;
    } else if (at.line != where.line || (at.file != where.file && std::strcmp(at.file, where.file) != 0)) {
      apart = true;
      other = at;
    }
  }
  /// Whether all that are awaited have come; they then go on.
  bool complete(int awaited, const char* what);
};

struct warp_state {
  int first = 0, lanes = 0;
  std::uint32_t ready = 0;  ///< lanes that can go on, a bit each
  int rests = 0;            ///< rounds that it still stands still
  meeting shuffle;
  // Two sets of slots and bits, by turns: a lane may be at the next exchange before its neighbour has read this one.
  unsigned turn = 0;
  bool all_met = false;  ///< and none has gone on yet
  std::uint32_t bits[2]{};

  std::uint32_t all() const { return lanes == warp ? ~std::uint32_t{0} : (std::uint32_t{1} << lanes) - 1; }
};

struct alignas(slot_bytes) slots {
  unsigned char bytes[2][warp][slot_bytes];
};

/// Of one host thread, so that calls on several host threads are apart as they are on a device.
struct block_runner {
  std::vector<thread> threads;
  std::vector<warp_state> warps;
  std::vector<slots> handed_in;  ///< of a warp
  std::vector<int> round;        ///< warps in the order of their turns
  std::size_t next_warp = 0;
  int turn[warp]{};  ///< threads in the order in which they run until their next stop
  int turn_length = 0, turn_at = 0;
  int turn_warp = 0;
  meeting barrier;
  int done = 0;
  int patience = 0;  ///< turns that threads have passed on since something has happened

  std::vector<std::unique_ptr<fiber>> fibers;
  std::vector<fiber*> idle;
  fiber launcher;

  shared_memory storage{most_shared_bytes + guard_bytes + 1};
  std::size_t shared_allowed = 0, shared_asked = 0;
  const std::function<void()>* body = nullptr;
  std::exception_ptr failure;
  int count = 0;
  std::int64_t block = 0;
  bool any = false, next_any = false;  ///< of the threads at the last barrier, and at the next
  std::int64_t barriers = 0;           ///< passed by all blocks so far
  std::uint64_t random = 0x9e3779b97f4a7c15u;

  std::uint64_t next_random() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }
  thread& self() { return threads[static_cast<std::size_t>(running_thread)]; }
  warp_state& own_warp() { return warps[static_cast<std::size_t>(running_thread / warp)]; }

  void begin_block();
  void release();
  void begin_round();
  bool begin_turn();
  int first_of_turn() noexcept;
  int next_thread() { return turn_at < turn_length ? turn[turn_at++] : first_of_turn(); }
  fiber& new_fiber();
  fiber& fiber_of(int i);
};

// Asked for at every stop, and a thread_local object with a destructor is slow to find.
extern constinit thread_local block_runner* current_runner;
block_runner& new_runner();

inline block_runner& runner() {
  return current_runner != nullptr ? *current_runner : new_runner();
}

/// Where thread i goes on, or the launch for nobody.
inline fiber& block_runner::fiber_of(int i) {
  if (i == nobody) return launcher;
  running_thread = i;
  thread& t = self();
  if (t.runs == nullptr) t.runs = &new_fiber();
  return *t.runs;
}

/// The others' turn.
inline void pass(block_runner& r) {
  fiber& own = *r.self().runs;
  fiber& next = r.fiber_of(r.next_thread());
  if (&next != &own) fiber::change(own, next);
}

/// Until the meeting, which this thread has joined, is complete.
inline void stop(block_runner& r) {
  r.patience = 0;
  r.own_warp().ready &= ~(std::uint32_t{1} << running_thread % warp);
  pass(r);
}

}  // namespace aft::emulator
