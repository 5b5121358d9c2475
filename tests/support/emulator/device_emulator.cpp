// SPDX-License-Identifier: Apache-2.0
#include "device_emulator.hpp"

#include <array>
#include <utility>
#include <vector>

#include "block_runner.hpp"
#include "shared_memory.hpp"

namespace aft::emulator {

namespace {

constexpr std::size_t copy_bytes = 16;

}  // namespace

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
