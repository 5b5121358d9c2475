// SPDX-License-Identifier: Apache-2.0
// Products of warpgroups: what a descriptor describes, when sums are there, and what memory they may read.
#include <device_emulator.hpp>
#include <warpgroup.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "launch.hpp"
#include "spaces.hpp"
#include "tensor_cores.hpp"
#include "together.hpp"

namespace aft::ptx {

namespace {

constexpr int threads = 128, rows = 64, columns = 256, depth = 16;
constexpr std::size_t line_bytes = 16;

/// Sums under way are NaN that say of which product, counted from 1, and which they are.
constexpr std::uint32_t mark_bits = 0xffc00000u;
std::uint32_t mark_of(unsigned product, unsigned sum) {
  return mark_bits | (product % 0x7fff + 1) << 7 | sum;
}
bool is_mark(std::uint32_t x) {
  return x > mark_bits + 127;
}

struct operands {
  std::uint16_t a[rows][depth], b[columns][depth];
};

struct product {
  std::uint64_t a, b;
  operands read;
  unsigned number, group;
  unsigned done = 0;  ///< warps that have waited for it, a bit each
};

struct group_thread {
  bool fenced = false;
  unsigned started = 0;  ///< products
  unsigned groups = 0;   ///< committed
  bool all_done = true;
};

struct group_state {
  int met = 0;
  unsigned meetings = 0;
  group_thread own[threads];
  std::vector<std::unique_ptr<product>> under_way;
  float sums[rows][columns];
};

std::map<int, std::unique_ptr<group_state>> groups;
std::vector<bool> written;  ///< 16 bytes each, by threads since the last fence
std::int64_t block_begun = -1;

group_state& own_group() {
  auto& group = groups[emulator::thread_index() / threads];
  if (!group) group = std::make_unique<group_state>();
  return *group;
}
group_thread& own_thread() {
  return own_group().own[emulator::thread_index() % threads];
}
float& sum_of(group_state& g, int thread, int i) {
  const int lane = thread % 32;
  return g.sums[thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

/// Element (row, k) of a matrix by rows of its depth. Rows of 128, 64 or 32 bytes lie by eights, and address bits 4 on
/// are changed by bits 7 on; without a swizzle 8 rows of 16 bytes are together.
std::uint16_t element(std::uint64_t matrix, int row, int k, int line) {
  const auto field = [&](int first) { return static_cast<std::uint64_t>(matrix >> first & 0x3fff) * line_bytes; };
  // By the manual's numbers of the modes: bits that take part, and with them the bytes of a row.
  static constexpr int swizzled_bits[] = {0, 3, 2, 1};
  if ((matrix >> 49 & 7) != 0) fail_at(line, "a matrix that begins within its pattern");
  const int bits = swizzled_bits[matrix >> 62];
  const int pitch = bits == 0 ? 16 : 16 << bits;
  std::uint64_t at =
      field(0) + static_cast<std::uint64_t>(row / 8) * field(32) + static_cast<std::uint64_t>(row % 8 * pitch);
  if (bits == 0) {
    at += static_cast<std::uint64_t>(k / 8) * field(16) + static_cast<std::uint64_t>(k % 8 * 2);
  } else {
    at += static_cast<std::uint64_t>(k * 2);
    at ^= (at >> 7 & ((1u << bits) - 1)) << 4;
  }
  std::uint16_t x;
  std::memcpy(&x, shared_memory::range(at, sizeof x, line), sizeof x);
  if (written[(at - shared_memory::first) / line_bytes])
    fail_at(line, "a product of what threads have written since the last fence for it");
  return x;
}

void read_operands(std::uint64_t a, std::uint64_t b, operands& to, int line) {
  for (int k = 0; k < depth; ++k) {
    for (int i = 0; i < rows; ++i) to.a[i][k] = element(a, i, k, line);
    for (int j = 0; j < columns; ++j) to.b[j][k] = element(b, j, k, line);
  }
}

factor number(std::uint16_t x, int sign) {
  const float value = std::bit_cast<float>(std::uint32_t{x} << 16);
  return factor(sign < 0 ? -value : value);
}

void add(group_state& g, const operands& read, int sign) {
  static factor a[rows][depth], b[columns][depth];
  for (int k = 0; k < depth; ++k) {
    for (int i = 0; i < rows; ++i) a[i][k] = number(read.a[i][k], sign);
    for (int j = 0; j < columns; ++j) b[j][k] = number(read.b[j][k], 1);
  }
  const adder how = adder_of(operand_kind::bfloat16);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) g.sums[i][j] = add_products(how, a[i], b[j], depth, g.sums[i][j]);
}

/// The last of the group's threads to come does what there is to do.
template <class F>
void meet_group(group_state& g, const F& last) {
  const unsigned meeting = g.meetings;
  if (++g.met == threads) {
    last();
    g.met = 0;
    ++g.meetings;
    emulator::note_progress();
    return;
  }
  while (g.meetings == meeting) emulator::yield();
}

}  // namespace

void begin_products(std::size_t shared) {
  if (block_begun == emulator::block_index()) return;
  block_begun = emulator::block_index();
  groups.clear();
  written.assign(shared / line_bytes + 1, false);
}
void forget_block() {
  block_begun = -1;
}

void note_write(std::size_t offset, std::size_t bytes) {
  for (std::size_t i = offset / line_bytes; i <= (offset + bytes - 1) / line_bytes; ++i) written[i] = true;
}

void show_to_copies() {
  emulator::show_barriers();
  std::fill(written.begin(), written.end(), false);
}

void multiply_group(float (&sums)[128], std::uint64_t a, std::uint64_t b, bool adds, int sign, int line) {
  group_state& g = own_group();
  const int own = emulator::thread_index() % threads;
  group_thread& t = g.own[own];
  if (!t.fenced) fail_at(line, "a product of a warpgroup on sums that no fence has ordered");
  const bool goes_on = is_mark(std::bit_cast<std::uint32_t>(sums[0]));
  for (unsigned i = 0; i < 128; ++i) {
    const auto x = std::bit_cast<std::uint32_t>(sums[i]);
    if (goes_on ? x != mark_of(t.started, i) : is_mark(x))
      fail_at(line, "sums of another product, or in another order");
    if (!goes_on) sum_of(g, own, static_cast<int>(i)) = sums[i];
    if (!adds) sum_of(g, own, static_cast<int>(i)) = 0;
  }
  ++t.started;
  if (g.met == 0) {
    g.under_way.push_back(std::make_unique<product>());
    *g.under_way.back() = {a, b, {}, t.started, t.groups};
  }
  if (g.under_way.back()->a != a || g.under_way.back()->b != b)
    fail_at(line, "threads of a warpgroup that disagree on a product");
  meet_group(g, [&] {
    product& last = *g.under_way.back();
    read_operands(a, b, last.read, line);
    add(g, last.read, sign);
  });
  for (unsigned i = 0; i < 128; ++i) sums[i] = std::bit_cast<float>(mark_of(t.started, i));
  t.all_done = false;
}

void warpgroup_fence() {
  own_thread().fenced = true;
}

void warpgroup_commit() {
  ++own_thread().groups;
}

void warpgroup_wait(int pending) {
  group_state& g = own_group();
  group_thread& t = own_thread();
  bool all = true;
  for (auto& p : g.under_way) {
    if (p->number > t.started) break;
    if (p->group + static_cast<unsigned>(pending) >= t.groups) {
      all = false;
      continue;
    }
    // Each warp has its part of a product, and waits for no other's.
    const unsigned warp_bit = 1u << emulator::thread_index() % threads / emulator::warp;
    if ((p->done & warp_bit) != 0) continue;
    p->done |= warp_bit;
    auto now = std::make_unique<operands>();
    read_operands(p->a, p->b, *now, 0);
    // Its memory was given to others too early.
    if (std::memcmp(now.get(), &p->read, sizeof p->read) != 0) emulator::fill_poison(g.sums, sizeof g.sums);
  }
  std::erase_if(g.under_way, [](const auto& p) { return p->done == (1u << threads / emulator::warp) - 1; });
  t.all_done = all;
  if (all) t.fenced = false;
}

void settle(float& x) {
  const auto all = std::bit_cast<std::uint32_t>(x);
  if (!is_mark(all)) return;
  group_state& g = own_group();
  const int own = emulator::thread_index() % threads;
  const group_thread& t = g.own[own];
  const unsigned i = all & 127;
  if (t.all_done && all == mark_of(t.started, i)) x = sum_of(g, own, static_cast<int>(i));
}

}  // namespace aft::ptx
