// SPDX-License-Identifier: Apache-2.0
#include "device_emulator.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fiber.hpp"

// This file and fiber.cpp are compiled without AddressSanitizer; the build says where kernels are watched by it.
#if defined(AFT_ASAN_FIBERS)
#include <sanitizer/asan_interface.h>
#endif

namespace aft::emulator {

namespace {

constexpr int warp = 32;
constexpr std::size_t shared_bytes = 48 * 1024;  // what every device gives without being asked for more
constexpr std::size_t guard_bytes = 256;         // behind it, watched for writes
constexpr std::size_t slot_bytes = 48;           // a lane's fragments of a matrix product, as floats
constexpr std::size_t copy_bytes = 16;
constexpr unsigned char poison[2] = {0xf5, 0x7f};  // a NaN in every floating type, as in strided.hpp

void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __asan_poison_memory_region(p, bytes);
#endif
}
void allow([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

void fill_poison(void* p, std::size_t bytes) {
  auto* b = static_cast<unsigned char*>(p);
  for (std::size_t i = 0; i < bytes; ++i) b[i] = poison[i % 2];
}

struct copy {
  unsigned char* to;
  const unsigned char* from;
  int group;
};

enum class state { ready, at_barrier, at_warp, done };

struct thread {
  std::unique_ptr<fiber> runs;
  state now = state::done;
  place where{};
  bool flag = false;
  // Two, by turns: a lane may be at the next exchange before its neighbour has read this one.
  alignas(16) unsigned char slot[2][slot_bytes];
  int turn = 0;
  std::vector<copy> copies;  ///< asynchronous ones that have not arrived, in order
  int groups = 0;            ///< of copies, committed so far
};

/// Of one host thread, so that calls on several host threads are apart as they are on a device.
struct block_runner {
  std::vector<thread> threads;
  std::vector<int> order;
  std::vector<int> rests;  ///< of a warp: the rounds that it still stands still
  std::vector<unsigned char> shared_storage;
  std::size_t shared_asked = 0;
  const std::function<void()>* body = nullptr;
  std::exception_ptr failure;
  int count = 0;
  int current = -1;
  std::int64_t block = 0;
  bool any = false;
  std::uint64_t random = 0x9e3779b97f4a7c15u;

  std::uint64_t next_random() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }
  thread& self() { return threads[static_cast<std::size_t>(current)]; }
};

block_runner& runner() {
  thread_local block_runner r;
  return r;
}

void run_thread() {
  block_runner& r = runner();
  try {
    (*r.body)();
  } catch (...) {
    r.failure = std::current_exception();
  }
  r.self().now = state::done;
}

void stop(state s, const place& at) {
  thread& t = runner().self();
  t.now = s;
  t.where = at;
  t.runs->leave();
}

std::string text(const place& at) {
  return std::string(at.file) + ":" + std::to_string(at.line);
}

/// Lets threads [first, last) go on if all of them wait for the same thing at the same place.
bool release_all(block_runner& r, int first, int last, state s, const char* what) {
  int waiting = 0;
  for (int i = first; i < last; ++i) waiting += r.threads[static_cast<std::size_t>(i)].now == s ? 1 : 0;
  if (waiting < last - first) return false;
  const auto& where = r.threads[static_cast<std::size_t>(first)].where;
  for (int i = first; i < last; ++i) {
    const auto& other = r.threads[static_cast<std::size_t>(i)].where;
    if (other.line != where.line || std::strcmp(other.file, where.file) != 0) {
      throw kernel_error(std::string("threads wait at two ") + what + "s: " + text(where) + " and " + text(other));
    }
  }
  for (int i = first; i < last; ++i) r.threads[static_cast<std::size_t>(i)].now = state::ready;
  return true;
}

/// What lies behind the kernel's struct. AddressSanitizer forbids to touch it, others find it changed.
bool guard_intact(block_runner& r) {
  allow(r.shared_storage.data() + r.shared_asked, guard_bytes);
  bool intact = true;
  for (std::size_t i = 0; i < guard_bytes; ++i)
    intact = intact && r.shared_storage[r.shared_asked + i] == poison[i % 2];
  forbid(r.shared_storage.data() + r.shared_asked, guard_bytes);
  return intact;
}

void run_block(block_runner& r) {
  // The kernel's first block asks while it runs; the later ones find their memory as uninitialised as the first.
  fill_poison(r.shared_storage.data(), r.shared_asked);
  for (int i = 0; i < r.count; ++i) {
    thread& t = r.threads[static_cast<std::size_t>(i)];
    t.now = state::ready;
    fill_poison(t.slot, sizeof t.slot);
    t.turn = 0;
    t.copies.clear();
    t.groups = 0;
  }
  while (true) {
    for (std::size_t i = r.order.size(); i > 1; --i) std::swap(r.order[i - 1], r.order[r.next_random() % i]);
    bool ready = false;
    bool all_done = true;
    // Now and then a warp stands still for a while, so that others get ahead of it by as much as barriers allow.
    const std::uint64_t random = r.next_random();
    if (random % 4 == 0) r.rests[random / 4 % r.rests.size()] = static_cast<int>(random / 1024 % 16);
    for (int& rest : r.rests) rest -= rest > 0 ? 1 : 0;
    for (int i : r.order) {
      if (r.threads[static_cast<std::size_t>(i)].now != state::ready) continue;
      ready = true;
      if (r.rests[static_cast<std::size_t>(i / warp)] > 0) continue;
      r.current = i;
      r.self().runs->enter();
      if (r.failure) std::rethrow_exception(std::exchange(r.failure, nullptr));
    }
    for (int i = 0; i < r.count; ++i) all_done = all_done && r.threads[static_cast<std::size_t>(i)].now == state::done;
    if (all_done) {
      if (r.shared_asked > 0 && !guard_intact(r)) throw kernel_error("a write behind the block's shared memory");
      return;
    }
    bool released = false;
    for (int w = 0; w < r.count; w += warp) {
      if (r.threads[static_cast<std::size_t>(w)].now == state::at_warp) {
        released = release_all(r, w, std::min(w + warp, r.count), state::at_warp, "shuffle") || released;
      }
    }
    if (r.threads[0].now == state::at_barrier && release_all(r, 0, r.count, state::at_barrier, "barrier")) {
      released = true;
      r.any = false;
      for (const thread& t : r.threads) r.any = r.any || t.flag;
      for (thread& t : r.threads) t.flag = false;
    }
    if (!ready && !released) throw kernel_error("not every thread reaches the barrier or shuffle that others wait at");
  }
}

}  // namespace

void run(std::int64_t blocks, int threads, const std::function<void()>& body) {
  block_runner& r = runner();
  r.body = &body;
  r.count = threads;
  r.threads.resize(static_cast<std::size_t>(threads));
  r.order.resize(static_cast<std::size_t>(threads));
  r.rests.assign(static_cast<std::size_t>((threads + warp - 1) / warp), 0);
  r.shared_storage.resize(shared_bytes + guard_bytes + 1);
  r.shared_asked = 0;
  for (int i = 0; i < threads; ++i) {
    r.order[static_cast<std::size_t>(i)] = i;
    auto& t = r.threads[static_cast<std::size_t>(i)];
    if (t.runs == nullptr) t.runs = std::make_unique<fiber>(run_thread);
  }
  try {
    for (r.block = 0; r.block < blocks; ++r.block) run_block(r);
  } catch (...) {
    // Fibers that were left half-way cannot be entered again.
    r.threads.clear();
    r.failure = nullptr;
    throw;
  }
}

void seed(std::uint64_t s) {
  runner().random = s * 2 + 1;
}

int thread_index() {
  return runner().current;
}
std::int64_t block_index() {
  return runner().block;
}

void* shared(std::size_t bytes) {
  block_runner& r = runner();
  if (bytes > shared_bytes) throw kernel_error("more shared memory than a block has");
  if (r.shared_asked == 0) {
    r.shared_asked = (bytes + 1) / 2 * 2;
    allow(r.shared_storage.data(), r.shared_storage.size());
    fill_poison(r.shared_storage.data(), r.shared_asked + guard_bytes);
    forbid(r.shared_storage.data() + r.shared_asked, guard_bytes);
  } else if (r.shared_asked != (bytes + 1) / 2 * 2) {
    throw kernel_error("a kernel with two blocks of shared memory");
  }
  return r.shared_storage.data();
}

void sync(const place& at) {
  stop(state::at_barrier, at);
}

bool sync_any(bool x, const place& at) {
  runner().self().flag = x;
  stop(state::at_barrier, at);
  return runner().any;
}

void exchange(const void* own, void* other, std::size_t bytes, int lane, const place& at) {
  block_runner& r = runner();
  if (bytes > 16) throw kernel_error("a shuffle of more than 16 bytes");
  thread& t = r.self();
  const int turn = t.turn;
  t.turn = 1 - turn;
  std::memcpy(t.slot[turn], own, bytes);
  const int from = r.current / warp * warp + lane;
  stop(state::at_warp, at);
  if (lane < 0 || lane >= warp || from >= r.count) throw kernel_error("a shuffle from a lane that is not there");
  std::memcpy(other, r.threads[static_cast<std::size_t>(from)].slot[turn], bytes);
}

std::uint32_t ballot(bool x, const place& at) {
  block_runner& r = runner();
  thread& t = r.self();
  const int turn = t.turn;
  t.turn = 1 - turn;
  t.slot[turn][0] = x ? 1 : 0;
  const int first = r.current / warp * warp;
  stop(state::at_warp, at);
  std::uint32_t bits = 0;
  for (int i = 0; i < warp && first + i < r.count; ++i) {
    if (r.threads[static_cast<std::size_t>(first + i)].slot[turn][0] != 0) bits |= std::uint32_t{1} << i;
  }
  return bits;
}

warp_bytes collect(const void* own, std::size_t bytes, const place& at) {
  block_runner& r = runner();
  if (bytes > slot_bytes) throw kernel_error("a lane hands in more than a slot holds");
  thread& t = r.self();
  const int turn = t.turn;
  t.turn = 1 - turn;
  std::memcpy(t.slot[turn], own, bytes);
  const int first = r.current / warp * warp;
  stop(state::at_warp, at);
  if (first + warp > r.count) throw kernel_error("an instruction for whole warps in a warp with fewer lanes");
  warp_bytes all{};
  for (int i = 0; i < warp; ++i) all.lane[i] = r.threads[static_cast<std::size_t>(first + i)].slot[turn];
  return all;
}

void copy_async(void* to, const void* from) {
  thread& t = runner().self();
  if (reinterpret_cast<std::uintptr_t>(to) % copy_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % copy_bytes != 0)
    throw kernel_error("an asynchronous copy that is not aligned to 16 bytes");
  fill_poison(to, copy_bytes);
  t.copies.push_back({static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), t.groups});
}

void commit_copies() {
  ++runner().self().groups;
}

void wait_copies(int pending) {
  thread& t = runner().self();
  const auto arrives = [&](const copy& c) { return c.group < t.groups - pending; };
  for (const copy& c : t.copies) {
    if (arrives(c)) std::memcpy(c.to, c.from, copy_bytes);
  }
  std::erase_if(t.copies, arrives);
}

}  // namespace aft::emulator
