// SPDX-License-Identifier: Apache-2.0
#include "device_emulator.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "shared_memory.hpp"
#include "warpgroup.hpp"

namespace aft::emulator {

namespace {

constexpr std::size_t most_shared_bytes = 227 * 1024;  // of a device that gives more when asked
constexpr std::size_t guard_bytes = 256;               // behind it, watched for writes
constexpr std::size_t copy_bytes = 16;
constexpr unsigned char poison[2] = {0xf5, 0x7f};
constexpr int nobody = -1;

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

std::string text(const place& at) {
  return std::string(at.file) + ":" + std::to_string(at.line);
}

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
  bool complete(int awaited, const char* what) {
    if (waiting < awaited) return false;
    if (apart) {
      throw kernel_error(std::string("threads wait at two ") + what + "s: " + text(where) + " and " + text(other));
    }
    waiting = 0;
    return true;
  }
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
constinit thread_local block_runner* found = nullptr;

block_runner& runner() {
  if (found == nullptr) {
    thread_local block_runner r;
    found = &r;
  }
  return *found;
}

/// What lies behind the kernel's struct. AddressSanitizer forbids to touch it, others find it changed.
bool guard_intact(block_runner& r) {
  allow(r.storage.data() + r.shared_asked, guard_bytes);
  bool intact = true;
  for (std::size_t i = 0; i < guard_bytes; ++i)
    intact = intact && r.storage.data()[r.shared_asked + i] == poison[i % 2];
  forbid(r.storage.data() + r.shared_asked, guard_bytes);
  return intact;
}

void block_runner::begin_block() {
  // The kernel's first block asks while it runs; the later ones find their memory as uninitialised as the first.
  fill_poison(storage.data(), shared_asked);
  fill_poison(handed_in.data(), handed_in.size() * sizeof(slots));
  for (thread& t : threads) {
    t.runs = nullptr;
    t.copies.clear();
    t.groups = 0;
  }
  for (warp_state& w : warps) w.ready = w.all();
  done = 0;
  turn_length = turn_at = 0;
  next_warp = round.size();
  patience = 0;
  begin_block_events();
}

/// Lets those go on whose last has come.
void block_runner::release() {
  warp_state& w = warps[static_cast<std::size_t>(turn_warp)];
  if (w.shuffle.complete(w.lanes, "shuffle")) {
    w.ready = w.all();
    w.turn ^= 1;
    w.all_met = true;
  }
  if (barrier.complete(count, "barrier")) {
    for (warp_state& each : warps) each.ready = each.all();
    any = std::exchange(next_any, false);
    ++barriers;
  }
}

void block_runner::begin_round() {
  const bool stuck = std::none_of(warps.begin(), warps.end(), [](const warp_state& w) { return w.ready != 0; });
  if (stuck) throw kernel_error("not every thread reaches the barrier or shuffle that others wait at");
  for (std::size_t i = round.size(); i > 1; --i) std::swap(round[i - 1], round[next_random() % i]);
  // Now and then a warp stands still for a while, so that others get ahead of it by as much as barriers allow.
  const std::uint64_t number = next_random();
  if (number % 4 == 0) warps[number / 4 % warps.size()].rests = static_cast<int>(number / 1024 % 16);
  for (warp_state& w : warps) w.rests -= w.rests > 0 ? 1 : 0;
  next_warp = 0;
}

/// False when all threads of the block have returned.
bool block_runner::begin_turn() {
  release();
  if (done == count) {
    end_block_events();
    if (shared_asked > 0 && !guard_intact(*this)) throw kernel_error("a write behind the block's shared memory");
    return false;
  }
  while (true) {
    if (next_warp == round.size()) begin_round();
    turn_warp = round[next_warp++];
    const warp_state& w = warps[static_cast<std::size_t>(turn_warp)];
    if (w.ready == 0 || w.rests > 0) continue;
    turn_length = turn_at = 0;
    std::uint64_t numbers = 0;
    for (std::uint32_t left = w.ready; left != 0; left &= left - 1) {
      if (turn_length % 4 == 0) numbers = next_random();
      const auto place = static_cast<int>((numbers & 0xffff) * static_cast<std::uint64_t>(turn_length + 1) >> 16);
      numbers >>= 16;
      turn[turn_length++] = turn[place];
      turn[place] = w.first + std::countr_zero(left);
    }
    // Lanes of other warps come in between, so that a warp is not one thread to them.
    const std::uint64_t number = next_random();
    pass_time(number / 1024);
    if (number % 4 == 0) turn_length = 1 + static_cast<int>(number / 4 % static_cast<std::uint64_t>(turn_length));
    return true;
  }
}

[[gnu::noinline]] int block_runner::first_of_turn() noexcept {
  try {
    return begin_turn() ? turn[turn_at++] : nobody;
  } catch (...) {
    failure = std::current_exception();
    return nobody;
  }
}

void run_threads();

[[gnu::noinline]] fiber& block_runner::new_fiber() {
  if (idle.empty()) {
    fibers.push_back(std::make_unique<fiber>(run_threads));
    idle.push_back(fibers.back().get());
  }
  fiber& f = *idle.back();
  idle.pop_back();
  return f;
}

/// Where thread i goes on, or the launch for nobody.
inline fiber& block_runner::fiber_of(int i) {
  if (i == nobody) return launcher;
  running_thread = i;
  thread& t = self();
  if (t.runs == nullptr) t.runs = &new_fiber();
  return *t.runs;
}

/// A fiber's body. One whose thread has returned begins the next in its place, which spares a change of stacks.
void run_threads() {
  block_runner& r = runner();
  while (true) {
    fiber* const own = r.self().runs;
    try {
      (*r.body)();
    } catch (...) {
      r.failure = std::current_exception();
    }
    if (r.failure) fiber::change(*own, r.launcher);
    warp_state& w = r.own_warp();
    w.ready &= ~(std::uint32_t{1} << running_thread % warp);
    ++r.done;
    r.patience = 0;
    r.idle.push_back(own);
    fiber& next = r.fiber_of(r.next_thread());
    if (&next != own) fiber::change(*own, next);
  }
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

}  // namespace

constinit thread_local int running_thread = nobody;

void fill_poison(void* p, std::size_t bytes) {
  auto* const b = static_cast<unsigned char*>(p);
  constexpr std::size_t step = 64;
  alignas(step) static constexpr auto pattern = [] {
    std::array<unsigned char, step> a{};
    for (std::size_t i = 0; i < step; ++i) a[i] = poison[i % 2];
    return a;
  }();
  std::size_t i = 0;
  for (; i + step <= bytes; i += step) std::memcpy(b + i, pattern.data(), step);
  std::memcpy(b + i, pattern.data(), bytes - i);
}

void fail(const char* what) {
  throw kernel_error(what);
}

void run(std::int64_t blocks, int threads, const std::function<void()>& body, std::size_t shared_bytes) {
  block_runner& r = runner();
  r.body = &body;
  r.count = threads;
  const auto warps = static_cast<std::size_t>((threads + warp - 1) / warp);
  r.threads.resize(static_cast<std::size_t>(threads));
  r.warps.assign(warps, {});
  r.handed_in.resize(warps);
  r.round.resize(warps);
  for (int i = 0; i < static_cast<int>(warps); ++i) {
    r.round[static_cast<std::size_t>(i)] = i;
    warp_state& w = r.warps[static_cast<std::size_t>(i)];
    w.first = i * warp;
    w.lanes = std::min(warp, threads - w.first);
  }
  r.turn_warp = 0;
  r.barrier = {};
  r.next_any = false;
  r.shared_allowed = shared_bytes;
  r.shared_asked = 0;
  for (r.block = 0; r.block < blocks; ++r.block) {
    r.begin_block();
    fiber& first = r.fiber_of(r.next_thread());
    if (&first != &r.launcher) fiber::change(r.launcher, first);
    if (!r.failure) continue;
    // Fibers that were left half-way cannot be entered again.
    r.threads.clear();
    r.idle.clear();
    r.fibers.clear();
    std::rethrow_exception(std::exchange(r.failure, nullptr));
  }
}

void seed(std::uint64_t s) {
  runner().random = s * 2 + 1;
}

void yield() {
  block_runner& r = runner();
  // Warps rest for up to 16 turns, and copies take some too.
  constexpr int turns = 400;
  if (++r.patience > turns * r.count) fail("threads wait for what nobody is going to do");
  pass(r);
}

void note_progress() {
  runner().patience = 0;
}

std::int64_t barriers_passed() {
  return runner().barriers;
}

std::int64_t block_index() {
  return runner().block;
}

void* shared(std::size_t bytes) {
  block_runner& r = runner();
  if (bytes > r.shared_allowed) throw kernel_error("more shared memory than a block has");
  if (r.shared_asked == 0) {
    r.shared_asked = (bytes + 1) / 2 * 2;
    allow(r.storage.data(), r.storage.size());
    fill_poison(r.storage.data(), r.shared_asked + guard_bytes);
    forbid(r.storage.data() + r.shared_asked, guard_bytes);
  } else if (r.shared_asked != (bytes + 1) / 2 * 2) {
    throw kernel_error("a kernel with two blocks of shared memory");
  }
  return r.storage.data();
}

const void* shared_begin() {
  return runner().storage.data();
}

void sync(const place& at) {
  block_runner& r = runner();
  r.barrier.join(at);
  stop(r);
}

bool sync_any(bool x, const place& at) {
  block_runner& r = runner();
  r.next_any = r.next_any || x;
  r.barrier.join(at);
  stop(r);
  return r.any;
}

unsigned char* own_slot() {
  block_runner& r = runner();
  const int i = running_thread;
  return r.handed_in[static_cast<std::size_t>(i / warp)].bytes[r.own_warp().turn][i % warp];
}

warp_slots meet(const place& at) {
  block_runner& r = runner();
  warp_state& w = r.own_warp();
  unsigned char* const first_lane = r.handed_in[static_cast<std::size_t>(w.first / warp)].bytes[w.turn][0];
  w.shuffle.join(at);
  stop(r);
  return {first_lane, w.lanes, std::exchange(w.all_met, false)};
}

std::uint32_t ballot(bool x, const place& at) {
  warp_state& w = runner().own_warp();
  std::uint32_t& bits = w.bits[w.turn];
  if (w.shuffle.waiting == 0) bits = 0;
  if (x) bits |= std::uint32_t{1} << running_thread % warp;
  (void)meet(at);
  return bits;
}

void copy_async(void* to, const void* from) {
  thread& t = runner().self();
  if (reinterpret_cast<std::uintptr_t>(to) % copy_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % copy_bytes != 0)
    throw kernel_error("an asynchronous copy that is not aligned to 16 bytes");
  watch_copy(to, from, copy_bytes);
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
