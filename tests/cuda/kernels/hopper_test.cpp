// SPDX-License-Identifier: Apache-2.0
// The emulated twins of aft/cuda/device/hopper.cuh, held to the PTX manual and to CUTLASS's description of the same
// instructions: where operands and sums of a warpgroup are, when a phase is over, and what too early a look finds.
#include <doctest/doctest.h>

#include <aft/cuda/bf16_gemm/tiles.cuh>
#include <aft/cuda/device/hopper.cuh>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

using namespace aft::cuda_impl;
namespace emulator = aft::emulator;

namespace {

constexpr int height = 64, width = 256, depth = 64;

struct alignas(1024) operand_tiles {
  std::byte left[height * operand_row_bytes];
  std::byte right[width * operand_row_bytes];
};

/// Small integers, exact in bfloat16 and in every sum, and the tiles that hold them.
struct matrices {
  float a[height][depth], b[width][depth];
  operand_tiles tiles;

  explicit matrices(unsigned seed) {
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int> pick(-9, 9);
    const auto fill = [&](auto& numbers, std::byte* tile) {
      int row = 0;
      for (auto& r : numbers) {
        for (int k = 0; k < depth; ++k) {
          r[k] = static_cast<float>(pick(engine));
          const std::uint16_t bits = float_to_bfloat16(r[k]);
          std::memcpy(tile + chunk_at(row, k / 8) + k % 8 * 2, &bits, sizeof bits);
        }
        ++row;
      }
    };
    fill(a, tiles.left);
    fill(b, tiles.right);
  }
  float product(int i, int j, int steps = depth / 16) const {
    float sum = 0;
    for (int k = 0; k < 16 * steps; ++k) sum += a[i][k] * b[j][k];
    return sum;
  }
};

/// CUTLASS writes where value v of thread t of a warpgroup is as digits times strides, in a 64 x 256 matrix counted
/// down its width: CLayout_64x256 of include/cute/atom/mma_traits_sm90_gmma.hpp, thread = (4, 8, 4), value = (2, 2,
/// 32).
int place_of(int t, int v) {
  return t % 4 * 128 + t / 4 % 8 * 1 + t / 32 * 16 + v % 2 * 64 + v / 2 % 2 * 8 + v / 4 * 512;
}

constexpr std::size_t much = dynamic_bytes<operand_tiles> * 2 + 1024;

}  // namespace

TEST_CASE("hopper: tiles are in the order that the 128-byte swizzle means") {
  // CUTLASS's Swizzle<3, 4, 3>: address bits 4 to 6 are changed by bits 7 to 9.
  for (int row = 0; row < width; ++row)
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int plain = row * operand_row_bytes + chunk * chunk_bytes;
      const int swizzled = plain ^ ((plain >> 7 & 7) << 4);
      CHECK(chunk_at(row, chunk) == swizzled);
    }
}

TEST_CASE("hopper: a matrix is described as the manual and CUTLASS have it") {
  // The fields of GmmaDescriptor in include/cute/arch/mma_sm90_desc.hpp, as make_gmma_desc fills them for a K-major
  // layout with Swizzle<3, 4, 3>: ((8, n), 2) with strides ((8, SBO), 1) in units of 16 bytes.
  emulator::run(
      1, 1,
      [] {
        struct alignas(1024) buffers {
          std::byte before[3072], rows[1024];
        };
        const std::uint64_t matrix = swizzled_matrix(dynamic_shared<buffers>().rows);
        CHECK((matrix & 0x3fff) == 3072 / 16);           // start_address_
        CHECK((matrix >> 16 & 0x3fff) == 1);             // leading_byte_offset_, stride_10
        CHECK((matrix >> 32 & 0x3fff) == 8 * 128 / 16);  // stride_byte_offset_, stride_01
        CHECK((matrix >> 49 & 7) == 0);                  // base_offset_
        CHECK((matrix >> 62) == 1);                      // layout_type_, B128
        CHECK((further(matrix, 96) & 0x3fff) == (3072 + 96) / 16);
        CHECK((further(matrix, 96) >> 14) == (matrix >> 14));
      },
      much);
}

TEST_CASE("hopper: a product of a warpgroup has its sums where the manual says, and adds to what was there") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const auto x = std::make_unique<matrices>(seed);
    std::vector<float> d(height * width);
    emulator::run(
        1, warpgroup_size,
        [&] {
          operand_tiles& tiles = dynamic_shared<operand_tiles>();
          if (thread_index() == 0) tiles = x->tiles;
          aft::cuda_impl::sync();
          wgmma_sums own;
          for (int v = 0; v < 128; ++v) own[v] = static_cast<float>(place_of(thread_index(), v) % 100);
          const std::uint64_t a = swizzled_matrix(tiles.left), b = swizzled_matrix(tiles.right);
          begin_products(own);
          for (int step = 0; step < depth / 16; ++step)
            multiply_group(own, further(a, 32 * step), further(b, 32 * step));
          commit_products();
          settle_products(own);
          for (int v = 0; v < 128; ++v) d[static_cast<std::size_t>(place_of(thread_index(), v))] = own[v];
        },
        much);
    bool right = true;
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < width; ++j) {
        const int place = i + height * j;
        right = right && d[static_cast<std::size_t>(place)] == x->product(i, j) + static_cast<float>(place % 100);
      }
    CHECK(right);
  }
}

TEST_CASE("hopper: a phase is over when all threads and all bytes have come, and parities take turns") {
  alignas(16) static const std::array<float, 8> source{1, 2, 3, 4, 5, 6, 7, 8};
  struct buffers {
    alignas(16) float to[8];
    arrival_barrier barrier;
  };
  emulator::run(1, 64, [] {
    buffers& memory = shared<buffers>();
    if (thread_index() == 0) {
      init_barrier(memory.barrier, 3);
      show_barriers();
    }
    aft::cuda_impl::sync();
    wait_phase(memory.barrier, 1);  // the phase before the first is over
    for (unsigned round = 0; round < 4; ++round) {
      if (thread_index() == 7) {
        arrive_expecting(memory.barrier, 32);
        copy_bulk(memory.to, source.data(), 16, memory.barrier);
        copy_bulk(memory.to + 4, source.data() + 4, 16, memory.barrier);
      }
      if (thread_index() == 40 || thread_index() == 41) arrive(memory.barrier);
      wait_phase(memory.barrier, round & 1);
      for (int i = 0; i < 8; ++i) CHECK(memory.to[i] == source[static_cast<std::size_t>(i)]);
      aft::cuda_impl::sync();
    }
  });
}

namespace {

enum class mistake {
  none,
  no_wait_for_copy,
  wrong_parity,
  fewer_bytes,
  early_release,
  no_wait_for_release,
  sums_too_early,
  no_begin,
  no_commit,
  hidden_barriers,
  no_release,
  unaligned,
  another_matrix
};

constexpr int tiles_of_test = 5;

/// Tiles through two stages, as the product does: a warp of its own copies, a warpgroup multiplies.
template <mistake planted>
void pipeline(const operand_tiles* in, float* out) {
  struct alignas(1024) buffers {
    operand_tiles stages[2];
    arrival_barrier full[2], empty[2];
  };
  buffers& memory = dynamic_shared<buffers>();
  if (thread_index() == 0) {
    for (int i = 0; i < 2; ++i) {
      init_barrier(memory.full[i], 1);
      init_barrier(memory.empty[i], 4);
    }
    if (planted != mistake::hidden_barriers) show_barriers();
  }
  aft::cuda_impl::sync();
  constexpr int bytes = static_cast<int>(sizeof(operand_tiles));
  if (thread_index() >= warpgroup_size) {
    for (int i = 0; i < tiles_of_test && thread_index() == warpgroup_size; ++i) {
      const unsigned parity = static_cast<unsigned>(i / 2) & 1u;
      if (planted != mistake::no_wait_for_release) wait_phase(memory.empty[i % 2], parity ^ 1u);
      arrive_expecting(memory.full[i % 2], planted == mistake::fewer_bytes ? bytes / 2 : bytes);
      const int half = planted == mistake::unaligned ? bytes / 2 + 8 : bytes / 2;
      auto* const to = reinterpret_cast<std::byte*>(&memory.stages[i % 2]);
      const auto* const from = reinterpret_cast<const std::byte*>(in + i);
      copy_bulk(to, from, half, memory.full[i % 2]);
      copy_bulk(to + half, from + half, bytes - half, memory.full[i % 2]);
    }
    return;
  }
  const bool signals = thread_index() % warp_size == 0;
  wgmma_sums d{};
  for (int i = 0; i < tiles_of_test; ++i) {
    const unsigned parity = static_cast<unsigned>(i / 2) & 1u;
    if (planted != mistake::no_wait_for_copy)
      wait_phase(memory.full[i % 2], planted == mistake::wrong_parity ? parity ^ 1u : parity);
    const std::uint64_t a = swizzled_matrix(memory.stages[i % 2].left);
    std::uint64_t b = swizzled_matrix(memory.stages[i % 2].right);
    if (planted == mistake::another_matrix && thread_index() == 77) b = further(b, 32);
    if (planted != mistake::no_begin) begin_products(d);
    for (int step = 0; step < depth / 16; ++step) multiply_group(d, further(a, 32 * step), further(b, 32 * step));
    if (planted != mistake::no_commit) commit_products();
    if (planted == mistake::early_release && signals) arrive(memory.empty[i % 2]);
    wait_products<1>();
    const bool releases = planted != mistake::early_release && planted != mistake::no_release;
    if (releases && i > 0 && signals) arrive(memory.empty[(i - 1) % 2]);
  }
  if (planted == mistake::sums_too_early) {
    wait_products<1>();
  } else {
    settle_products(d);
  }
  for (int v = 0; v < 128; ++v) out[place_of(thread_index(), v)] = d[v];
  // What is still under way must not outlive the registers.
  settle_products(d);
}

struct outcome {
  int right = 0, wrong = 0, errors = 0;
};

/// Of several orders of the threads.
outcome outcomes(void (*kernel)(const operand_tiles*, float*)) {
  constexpr int runs = 6;
  static const auto data = [] {
    std::vector<std::unique_ptr<matrices>> all;
    for (unsigned i = 0; i < tiles_of_test; ++i) all.push_back(std::make_unique<matrices>(100 + i));
    return all;
  }();
  std::vector<operand_tiles> in;
  in.reserve(data.size());
  for (const auto& x : data) in.push_back(x->tiles);
  outcome all;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    emulator::seed(seed);
    std::vector<float> out(height * width);
    try {
      emulator::run(
          1, warpgroup_size + warp_size, [&] { kernel(in.data(), out.data()); }, 2 * much);
    } catch (const emulator::kernel_error&) {
      ++all.errors;
      continue;
    }
    bool right = true;
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < width; ++j) {
        float want = 0;
        for (const auto& x : data) want += x->product(i, j);
        const auto place = static_cast<std::size_t>(i) + std::size_t{height} * static_cast<std::size_t>(j);
        right = right && out[place] == want;
      }
    ++(right ? all.right : all.wrong);
  }
  return all;
}

}  // namespace

TEST_CASE("hopper: a pipeline of copies and products is right in every order of the threads") {
  CHECK(outcomes(pipeline<mistake::none>).right == 6);
}

TEST_CASE("hopper: a stage that is read before its copies have arrived, or written before its products, shows") {
  CHECK(outcomes(pipeline<mistake::no_wait_for_copy>).right == 0);
  CHECK(outcomes(pipeline<mistake::wrong_parity>).right == 0);
  CHECK(outcomes(pipeline<mistake::fewer_bytes>).right == 0);
  CHECK(outcomes(pipeline<mistake::early_release>).right <= 1);
  CHECK(outcomes(pipeline<mistake::no_wait_for_release>).right == 0);
}

TEST_CASE("hopper: sums that are looked at before they are waited for are NaN") {
  CHECK(outcomes(pipeline<mistake::sums_too_early>).wrong == 6);
  CHECK(outcomes(pipeline<mistake::no_commit>).right == 0);
}

TEST_CASE("hopper: what the manual forbids is an error, and so is waiting for ever") {
  for (const auto kernel :
       {pipeline<mistake::no_begin>, pipeline<mistake::hidden_barriers>, pipeline<mistake::no_release>,
        pipeline<mistake::unaligned>, pipeline<mistake::another_matrix>})
    CHECK(outcomes(kernel).errors == 6);
}
