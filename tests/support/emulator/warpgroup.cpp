// SPDX-License-Identifier: Apache-2.0
#include "warpgroup.hpp"

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace aft::emulator {

namespace {

constexpr int group_threads = 128, group_warps = group_threads / warp;
constexpr int rows = 64, columns = 256, depth = 16;
constexpr std::size_t line = 16;  ///< what addresses and sizes of copies are multiples of

struct barrier_state {
  int expected = 0, awaited = 0;
  std::int64_t bytes = 0;
  unsigned phases = 0;  ///< that are over
  bool shown = false;

  void settle() {
    if (awaited > 0 || bytes != 0) return;
    ++phases;
    awaited = expected;
    note_progress();
  }
};

struct bulk_copy {
  unsigned char* to;
  const unsigned char* from;
  std::size_t bytes;
  const void* barrier;
};

/// What a product has read.
struct operands {
  std::uint16_t a[rows][depth], b[columns][depth];
};

struct product {
  std::uint64_t a, b;  ///< as they were described
  operands read;
  int number, group;
  unsigned done = 0;  ///< warps that have waited for it, a bit each
};

struct group_thread {
  float* sums = nullptr;  ///< the registers that products under way add to
  bool begun = false;     ///< begin_products() since the sums were touched
  int started = 0;        ///< products, so far
  int groups = 0;         ///< of products, committed so far
};

struct warpgroup_state {
  int met = 0;
  unsigned meetings = 0;
  group_thread threads[group_threads];
  std::vector<std::unique_ptr<product>> under_way;
  float acc[rows][columns];
};

/// Of one host thread.
struct block_events {
  std::map<const void*, barrier_state> barriers;
  std::vector<bulk_copy> copies;
  std::map<int, std::unique_ptr<warpgroup_state>> groups;
};
thread_local block_events events;

barrier_state& state_of(const void* barrier) {
  const auto found = events.barriers.find(barrier);
  if (found == events.barriers.end()) fail("an mbarrier that was not initialised");
  return found->second;
}

warpgroup_state& own_group() {
  auto& group = events.groups[thread_index() / group_threads];
  if (!group) group = std::make_unique<warpgroup_state>();
  return *group;
}
group_thread& own_thread() {
  return own_group().threads[thread_index() % group_threads];
}

/// Element (row, k) of a matrix in shared memory: rows of 128 bytes by eights, whose address bits 4 to 6 are changed by
/// bits 7 to 9.
std::uint16_t element(std::uint64_t matrix, int row, int k) {
  const auto field = [&](int first) { return static_cast<unsigned>(matrix >> first & 0x3fff) * 16; };
  unsigned at = field(0) + static_cast<unsigned>(row / 8) * field(32) + static_cast<unsigned>(row % 8 * 128 + k * 2);
  at ^= (at >> 7 & 7) << 4;
  std::uint16_t x;
  std::memcpy(&x, static_cast<const unsigned char*>(shared_begin()) + at, sizeof x);
  return x;
}

void require_swizzled(std::uint64_t matrix) {
  if (matrix >> 62 != 1) fail("a matrix in shared memory without the 128-byte swizzle");
  if ((matrix >> 49 & 7) != 0 || (matrix >> 3 & 7) != 0)
    fail("a matrix in shared memory that begins within eight rows");
}

void read_operands(std::uint64_t a, std::uint64_t b, operands& to) {
  for (int k = 0; k < depth; ++k) {
    for (int i = 0; i < rows; ++i) to.a[i][k] = element(a, i, k);
    for (int j = 0; j < columns; ++j) to.b[j][k] = element(b, j, k);
  }
}

/// The last of the warpgroup's threads to come does what there is to do.
template <class F>
void meet_group(warpgroup_state& g, const F& last) {
  const unsigned meeting = g.meetings;
  if (++g.met == group_threads) {
    last();
    g.met = 0;
    ++g.meetings;
    note_progress();
    return;
  }
  while (g.meetings == meeting) yield();
}

/// Element i of this thread's part of the sums.
float& sum_of(warpgroup_state& g, int thread, int i) {
  const int lane = thread % warp;
  return g.acc[thread / warp * 16 + lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

}  // namespace

unsigned shared_address(const void* p) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(p) -
                               static_cast<const unsigned char*>(shared_begin()));
}

void init_barrier(void* barrier, int arrivals) {
  events.barriers[barrier] = {arrivals, arrivals};
}

void show_barriers() {
  for (auto& each : events.barriers) each.second.shown = true;
}

void arrive(void* barrier, int bytes) {
  barrier_state& b = state_of(barrier);
  b.bytes += bytes;
  if (--b.awaited < 0) fail("more threads at an mbarrier than it waits for");
  b.settle();
}

bool phase_over(const void* barrier, unsigned parity) {
  return (state_of(barrier).phases & 1) != parity;
}

void wait_phase(const void* barrier, unsigned parity) {
  while (!phase_over(barrier, parity)) yield();
}

void copy_bulk(void* to, const void* from, std::size_t bytes, void* barrier) {
  if (!state_of(barrier).shown) fail("a bulk copy to an mbarrier that it does not see");
  if (reinterpret_cast<std::uintptr_t>(to) % line != 0 || reinterpret_cast<std::uintptr_t>(from) % line != 0 ||
      bytes % line != 0)
    fail("a bulk copy that is not aligned to 16 bytes");
  fill_poison(to, bytes);
  events.copies.push_back({static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes, barrier});
}

void begin_products() {
  own_thread().begun = true;
}

void multiply_group(float (&d)[group_threads], std::uint64_t a, std::uint64_t b) {
  warpgroup_state& g = own_group();
  const int own = thread_index() % group_threads;
  group_thread& t = g.threads[own];
  require_swizzled(a);
  require_swizzled(b);
  if (!t.begun) fail("a product of a warpgroup on sums that begin_products() has not seen");
  if (t.sums == nullptr) {
    t.sums = d;
    for (int i = 0; i < 128; ++i) sum_of(g, own, i) = d[i];
    fill_poison(d, sizeof d);
  } else if (t.sums != d) {
    fail("products of a warpgroup on two sets of sums at once");
  }
  if (g.met == 0) {
    g.under_way.push_back(std::make_unique<product>());
    g.under_way.back()->a = a;
    g.under_way.back()->b = b;
    g.under_way.back()->number = t.started;
    g.under_way.back()->group = t.groups;
  }
  ++t.started;
  if (g.under_way.back()->a != a || g.under_way.back()->b != b)
    fail("threads of a warpgroup that disagree on a product");
  meet_group(g, [&] {
    product& last = *g.under_way.back();
    read_operands(a, b, last.read);
    multiply_bfloat16_rows(last.read.a, last.read.b, g.acc);
  });
}

void commit_products() {
  ++own_thread().groups;
}

void wait_products(int pending) {
  warpgroup_state& g = own_group();
  const int own = thread_index() % group_threads;
  group_thread& t = g.threads[own];
  const unsigned warp_bit = 1u << own / warp;
  const auto complete = [&](const product& p) { return p.group < t.groups - pending; };
  bool all = true;
  for (auto& p : g.under_way) {
    // One that only threads ahead of this have come to.
    if (p->number >= t.started) break;
    if (!complete(*p)) {
      all = false;
    } else if ((p->done & warp_bit) == 0) {
      p->done |= warp_bit;
      auto now = std::make_unique<operands>();
      read_operands(p->a, p->b, *now);
      // Its memory was given back too early.
      if (std::memcmp(now.get(), &p->read, sizeof p->read) != 0) fill_poison(g.acc, sizeof g.acc);
    }
  }
  std::erase_if(g.under_way, [](const auto& p) { return p->done == (1u << group_warps) - 1; });
  if (!all || t.sums == nullptr) return;
  for (int i = 0; i < 128; ++i) t.sums[i] = sum_of(g, own, i);
  t.sums = nullptr;
  t.begun = false;
}

bool has_warpgroups() {
  return current_products() == products::by_warpgroups;
}

void begin_block_events() {
  events.barriers.clear();
  events.copies.clear();
  events.groups.clear();
}

void pass_time(std::uint64_t random) {
  // About one in eight turns, so that copies come late as often as early.
  if (events.copies.empty() || random % 8 != 0) return;
  const std::size_t i = random / 8 % events.copies.size();
  const bulk_copy arrived = events.copies[i];
  events.copies.erase(events.copies.begin() + static_cast<std::ptrdiff_t>(i));
  std::memcpy(arrived.to, arrived.from, arrived.bytes);
  barrier_state& b = state_of(arrived.barrier);
  b.bytes -= static_cast<std::int64_t>(arrived.bytes);
  b.settle();
  note_progress();
}

void end_block_events() {
  if (!events.copies.empty()) throw kernel_error("a block that has ended before its bulk copies have arrived");
}

}  // namespace aft::emulator
