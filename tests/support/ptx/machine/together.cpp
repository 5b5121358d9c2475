// SPDX-License-Identifier: Apache-2.0
#include "together.hpp"

#include <device_emulator.hpp>
#include <warpgroup.hpp>

#include <cstring>
#include <string>

#include "launch.hpp"
#include "spaces.hpp"
#include "tensor_cores.hpp"

namespace aft::ptx {

namespace {

using emulator::warp;

constexpr std::size_t line_bytes = 16;

std::size_t block_shared = 0;

emulator::place at(int line) {
  return {running_kernel(), line};
}

/// All lanes that the warp has take part in everything that our kernels ask of a warp.
void require_all(std::uint32_t lanes, int line) {
  if (lanes != 0xffffffffu) fail_at(line, "an exchange of a part of a warp");
}

void require_first(std::uint32_t number, int line) {
  if (number != 0) fail_at(line, "another barrier than the first");
}

}  // namespace

void begin_thread(std::size_t shared) {
  block_shared = shared;
  if (shared > 0) (void)emulator::shared(shared);
  begin_products(shared);
}
unsigned char* shared_storage() {
  return static_cast<unsigned char*>(const_cast<void*>(emulator::shared_begin()));
}
std::size_t shared_bytes() {
  return block_shared;
}

void barrier(std::uint32_t number, int line) {
  require_first(number, line);
  emulator::sync(at(line));
}
bool barrier_any(std::uint32_t number, bool x, int line) {
  require_first(number, line);
  return emulator::sync_any(x, at(line));
}
void warp_barrier(std::uint32_t lanes, int line) {
  require_all(lanes, line);
  (void)emulator::meet(at(line));
}

shuffled shuffle(exchange mode, std::uint32_t x, std::uint32_t b, std::uint32_t bounds, std::uint32_t lanes, int line) {
  require_all(lanes, line);
  // The manual's names: the part of the warp that a lane belongs to, and its last lane there.
  const std::uint32_t lane = static_cast<std::uint32_t>(emulator::thread_index() % warp), segment = bounds >> 8 & 0x1f;
  const std::uint32_t last = (lane & segment) | (bounds & 0x1f & ~segment), first = lane & segment;
  b &= 0x1f;
  std::uint32_t from = 0;
  bool valid = false;
  switch (mode) {
    case exchange::up:
      from = lane - b;
      valid = static_cast<std::int32_t>(from) >= static_cast<std::int32_t>(last);
      break;
    case exchange::down:
      from = lane + b;
      valid = from <= last;
      break;
    case exchange::xor_mask:
      from = lane ^ b;
      valid = from <= last;
      break;
    case exchange::index:
      from = first | (b & ~segment);
      valid = from <= last;
      break;
  }
  if (!valid) from = lane;
  return {emulator::shuffle(x, static_cast<int>(from), at(line)), valid};
}

std::uint32_t ballot(bool x, std::uint32_t lanes, int line) {
  require_all(lanes, line);
  return emulator::ballot(x, at(line));
}

std::array<std::uint32_t, 4> load_matrices(std::uint64_t row, int line) {
  std::uint32_t words[4];
  emulator::load_matrices(words, shared_memory::range(row, line_bytes, line), at(line));
  return std::to_array(words);
}

std::array<float, 4> multiply_warp(operand_kind kind, const std::array<std::uint32_t, 4>& a,
                                   const std::array<std::uint32_t, 2>& b, const std::array<float, 4>& c, int line) {
  warp_fragments own{a, b, c};
  static_assert(sizeof own <= emulator::slot_bytes);
  std::memcpy(emulator::own_slot(), &own, sizeof own);
  const emulator::warp_slots all = emulator::meet(at(line));
  emulator::require_whole(all);
  if (all.first) {
    warp_fragments lanes[warp];
    for (int i = 0; i < warp; ++i) std::memcpy(&lanes[i], all[i], sizeof own);
    multiply_fragments(kind, lanes);
    for (int i = 0; i < warp; ++i) std::memcpy(all[i], &lanes[i], sizeof own);
  }
  std::memcpy(&own, all[emulator::thread_index() % warp], sizeof own);
  return own.c;
}

void copy_async(std::uint64_t to, std::uint64_t from, int line) {
  global_memory::require_aligned(to, line_bytes, line);
  global_memory::require_aligned(from, line_bytes, line);
  emulator::copy_async(shared_memory::at(to, line_bytes, line), global_memory::at(from, line_bytes, line));
}

void copy_bulk(std::uint64_t to, std::uint64_t from, std::uint32_t bytes, std::uint64_t barrier, int line) {
  global_memory::require_aligned(to, line_bytes, line);
  global_memory::require_aligned(from, line_bytes, line);
  if (bytes % line_bytes != 0) fail_at(line, "a bulk copy of no multiple of 16 bytes");
  emulator::copy_bulk(shared_memory::range(to, bytes, line), global_memory::at(from, bytes, line), bytes,
                      shared_memory::range(barrier, 8, line));
}

void init_barrier(std::uint64_t barrier, std::uint32_t arrivals, int line) {
  global_memory::require_aligned(barrier, 8, line);
  if (arrivals == 0 || arrivals >= 1u << 20) fail_at(line, "a barrier for a number of arrivals that it cannot count");
  emulator::init_barrier(shared_memory::range(barrier, 8, line), static_cast<int>(arrivals));
}
void arrive(std::uint64_t barrier, std::uint32_t bytes, int line) {
  if (bytes >= 1u << 20) fail_at(line, "more bytes than a barrier can count");
  emulator::arrive(shared_memory::range(barrier, 8, line), static_cast<int>(bytes));
}
bool try_wait(std::uint64_t barrier, std::uint32_t parity, int line) {
  if (parity > 1) fail_at(line, "a parity that is neither 0 nor 1");
  if (emulator::phase_over(shared_memory::range(barrier, 8, line), parity)) return true;
  emulator::yield();
  return false;
}

}  // namespace aft::ptx
