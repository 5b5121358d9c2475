// SPDX-License-Identifier: Apache-2.0
// The emulated device runs right kernels as a device does, and finds what is wrong in the others.
#include <doctest/doctest.h>

#include <aft/cuda/math/arithmetic.cuh>
#include <aft/cuda/device/runtime.cuh>

#include <numeric>
#include <vector>

namespace {

using aft::index_t;
namespace emulator = aft::emulator;
using namespace aft::cuda_impl;

constexpr int threads = 64;

struct row_buffers {
  float values[threads];
};

enum class mistake { none, no_barrier, no_second_barrier, neighbour_beyond, uninitialised, wrong_lane, divergent };

/// out[i] = the sum of the block's numbers, in the ways that the library's kernels add: by shared memory and by
/// shuffles, once for each of two rounds. With a mistake planted.
template <mistake planted>
void sum_kernel(const float* in, float* out, int rounds) {
  row_buffers& tile = shared<row_buffers>();
  const int i = thread_index();
  float total = 0;
  for (int round = 0; round < rounds; ++round) {
    if (planted != mistake::no_second_barrier) sync();
    if (!(planted == mistake::uninitialised && i == 7))
      tile.values[i] = in[block_index() * threads + i] + static_cast<float>(round);
    if (planted == mistake::divergent && i < 10) continue;
    if (planted != mistake::no_barrier) sync();
    float sum = tile.values[planted == mistake::neighbour_beyond ? i + 1 : threads - 1 - i];
    const int lane_mask = planted == mistake::wrong_lane && round == 1 ? 2 : 1;
    for (int mask = 16; mask > 1; mask /= 2) sum += shuffle_xor(sum, mask);
    sum += shuffle_xor(sum, lane_mask);
    total += sum;
  }
  out[block_index() * threads + i] = total;
}

/// Each thread of a warp gets the sum over the other warp of two, its mirror image.
bool sums_right(void (*kernel)(const float*, float*, int)) {
  constexpr int blocks = 5;
  std::vector<float> in(blocks * threads);
  std::iota(in.begin(), in.end(), 1.0f);
  bool right = true;
  for (int rounds : {1, 2}) {
    std::vector<float> out(in.size(), -1.0f);
    emulator::run(blocks, threads, [&] { kernel(in.data(), out.data(), rounds); });
    for (int i = 0; i < blocks * threads; ++i) {
      const int other = i / threads * threads + (i % threads < 32 ? 32 : 0);
      float want = 0;
      for (int round = 0; round < rounds; ++round)
        for (int lane = 0; lane < 32; ++lane)
          want += in[static_cast<std::size_t>(other + lane)] + static_cast<float>(round);
      right = right && out[static_cast<std::size_t>(i)] == want;
    }
  }
  return right;
}

}  // namespace

TEST_CASE("emulator: a right kernel gives the right sums, whatever order its threads run in") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    emulator::seed(seed);
    CHECK(sums_right(sum_kernel<mistake::none>));
  }
}

TEST_CASE("emulator: a missing barrier shows, before the read and before the next write") {
  CHECK_FALSE(sums_right(sum_kernel<mistake::no_barrier>));
  // One warp must get ahead of the other by a whole round, which not every order brings about.
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    emulator::seed(seed);
    seen += sums_right(sum_kernel<mistake::no_second_barrier>) ? 0 : 1;
  }
  CHECK(seen > 5);
}

TEST_CASE("emulator: shared memory that nobody wrote is not a number") {
  CHECK_FALSE(sums_right(sum_kernel<mistake::uninitialised>));
}

TEST_CASE("emulator: a shuffle from the wrong lane gives another sum") {
  CHECK_FALSE(sums_right(sum_kernel<mistake::wrong_lane>));
}

TEST_CASE("emulator: a barrier that some threads do not reach is an error, and the emulator can be used after it") {
  CHECK_THROWS_AS(sums_right(sum_kernel<mistake::divergent>), emulator::kernel_error);
  CHECK(sums_right(sum_kernel<mistake::none>));
}

TEST_CASE("emulator: threads that wait at different barriers are an error") {
  const auto body = [] {
    if (thread_index() % 2 == 0) {
      sync();
    } else {
      sync();
    }
  };
  CHECK_THROWS_AS(emulator::run(1, threads, body), emulator::kernel_error);
}

TEST_CASE("emulator: a lane that leaves its warp before a shuffle is an error") {
  const auto body = [] {
    if (thread_index() == 5) return;
    (void)shuffle_xor(1.0f, 1);
  };
  CHECK_THROWS_AS(emulator::run(1, threads, body), emulator::kernel_error);
}

// AddressSanitizer and UndefinedBehaviorSanitizer end the program at these: their builds see the mistake by dying,
// which a test of the whole program looks for (see tests/cuda/CMakeLists.txt).
#if !defined(AFT_TEST_ENDED_BY_SANITIZERS)
TEST_CASE("emulator: shared memory of the neighbour that is not there, read or written") {
  CHECK_FALSE(sums_right(sum_kernel<mistake::neighbour_beyond>));
  const auto write_behind = [] {
    row_buffers& tile = shared<row_buffers>();
    float* const values = tile.values;
    values[thread_index() + 1] = 1.0f;
  };
  CHECK_THROWS_AS(emulator::run(1, threads, write_behind), emulator::kernel_error);
}
#endif

TEST_CASE("emulator: more shared memory than a block has is an error") {
  struct large {
    float values[13000];
  };
  CHECK_THROWS_AS(emulator::run(1, 32, [] { (void)shared<large>(); }), emulator::kernel_error);
}

TEST_CASE("emulator: device memory starts as NaN and is counted") {
  const std::size_t before = emulator::memory().in_use;
  auto* const p = static_cast<float*>(emulator::allocate(64 * sizeof(float)));
  for (int i = 0; i < 64; ++i) CHECK(p[i] != p[i]);
  CHECK(emulator::memory().in_use == before + 64 * sizeof(float));
  emulator::release(p, 64 * sizeof(float));
  CHECK(emulator::memory().in_use == before);
  emulator::fail_allocation(1);
  auto* const q = emulator::allocate(4);
  CHECK(q != nullptr);
  CHECK(emulator::allocate(4) == nullptr);
  emulator::release(q, 4);
}

TEST_CASE("emulator: ballots hold one bit a lane") {
  std::vector<std::uint32_t> words(threads);
  emulator::run(1, threads, [&] {
    const int i = thread_index();
    words[static_cast<std::size_t>(i)] = ballot(i % 3 == 0 || i >= 60);
  });
  for (int i = 0; i < threads; ++i) {
    std::uint32_t want = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int j = i / 32 * 32 + lane;
      if (j % 3 == 0 || j >= 60) want |= std::uint32_t{1} << lane;
    }
    CHECK(words[static_cast<std::size_t>(i)] == want);
  }
}

TEST_CASE("emulator: a grid that no device can hold is a device_error, and nothing is launched") {
  const call_stream stream("aft::full", nullptr);
  const long launches = emulator::memory().launches;
  std::string error;
  try {
    stream.launch(&sum_kernel<mistake::none>, index_t{1} << 31, threads, nullptr, nullptr, 1);
  } catch (const aft::device_error& e) {
    error = e.what();
  }
  CHECK(error ==
        "aft::full: too large a grid: cudaErrorInvalidConfiguration (2147483648 blocks; a grid holds 2147483647)");
  CHECK(emulator::memory().launches == launches);
}
