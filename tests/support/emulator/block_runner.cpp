// SPDX-License-Identifier: Apache-2.0
#include "block_runner.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "warpgroup.hpp"

namespace aft::emulator {

namespace {

std::string text(const place& at) {
  return std::string(at.file) + ":" + std::to_string(at.line);
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

}  // namespace

constinit thread_local block_runner* current_runner = nullptr;

block_runner& new_runner() {
  thread_local block_runner r;
  current_runner = &r;
  return r;
}

constinit thread_local int running_thread = nobody;

bool meeting::complete(int awaited, const char* what) {
  if (waiting < awaited) return false;
  if (apart) {
    throw kernel_error(std::string("threads wait at two ") + what + "s: " + text(where) + " and " + text(other));
  }
  waiting = 0;
  return true;
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

[[gnu::noinline]] fiber& block_runner::new_fiber() {
  if (idle.empty()) {
    fibers.push_back(std::make_unique<fiber>(run_threads));
    idle.push_back(fibers.back().get());
  }
  fiber& f = *idle.back();
  idle.pop_back();
  return f;
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

}  // namespace aft::emulator
