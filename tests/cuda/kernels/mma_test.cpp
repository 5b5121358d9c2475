// SPDX-License-Identifier: Apache-2.0
// The emulated twins of aft/cuda/device/mma.cuh, held to the PTX manual: where each lane's elements of a matrix are,
// what rounding and cutting does to them, and when a copy has arrived.
#include <doctest/doctest.h>

#include <aft/cuda/device/mma.cuh>
#include <aft/cuda/tensor/storage.cuh>

#include <array>
#include <cmath>
#include <random>
#include <vector>

using namespace aft::cuda_impl;
namespace emulator = aft::emulator;

namespace {

constexpr int lanes = 32;

template <int depth>
struct matrices {
  float a[16][depth], b[depth][8], c[16][8];

  /// Integers: every product and sum is exact in any order.
  static matrices random(unsigned seed) {
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int> pick(-9, 9);
    matrices x;
    for (auto& row : x.a)
      for (float& e : row) e = static_cast<float>(pick(engine));
    for (auto& row : x.b)
      for (float& e : row) e = static_cast<float>(pick(engine));
    for (auto& row : x.c)
      for (float& e : row) e = static_cast<float>(pick(engine));
    return x;
  }
  float product(int i, int j) const {
    float sum = c[i][j];
    for (int k = 0; k < depth; ++k) sum += a[i][k] * b[k][j];
    return sum;
  }
};

std::uint32_t two_halves_of(float low, float high) {
  return aft::detail::float_to_half_bits(low) | static_cast<std::uint32_t>(aft::detail::float_to_half_bits(high)) << 16;
}

// The manual's formulas, by its names: element i of a fragment is at (row, column).

// "Matrix Fragments for mma.m16n8k8", .tf32
int tf32_a_row(int group, int i) {
  return i == 0 || i == 2 ? group : group + 8;
}
int tf32_a_column(int thread_in_group, int i) {
  return i < 2 ? thread_in_group : thread_in_group + 4;
}
int tf32_b_row(int thread_in_group, int i) {
  return i == 0 ? thread_in_group : thread_in_group + 4;
}

// "Matrix Fragments for mma.m16n8k16 with floating point type", .f16
int half_a_row(int group, int i) {
  return (0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8;
}
int half_a_column(int thread_in_group, int i) {
  return i < 4 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8;
}
int half_b_row(int thread_in_group, int i) {
  return i < 2 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8;
}

// Both
int c_row(int group, int i) {
  return i < 2 ? group : group + 8;
}
int c_column(int thread_in_group, int i) {
  return thread_in_group * 2 + (i & 1);
}

/// One product on one warp; D as the lanes hold it, read back by the manual's formulas.
template <int depth, class Multiply>
bool multiplies_right(const matrices<depth>& x, const Multiply& multiply_lane) {
  float d[16][8];
  emulator::run(1, lanes, [&] {
    const int group = thread_index() / 4, in_group = thread_index() % 4;
    float own[4];
    for (int i = 0; i < 4; ++i) own[i] = x.c[c_row(group, i)][c_column(in_group, i)];
    multiply_lane(own, group, in_group);
    for (int i = 0; i < 4; ++i) d[c_row(group, i)][c_column(in_group, i)] = own[i];
  });
  bool right = true;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) right = right && d[i][j] == x.product(i, j);
  return right;
}

/// d += a b for single numbers: a b in the corner, at depths 0 and 1, and c there.
float corner(float c, float a0, float b0, float a1 = 0, float b1 = 0) {
  float result = 0;
  emulator::run(1, lanes, [&] {
    float d[4] = {thread_index() == 0 ? c : 0, 0, 0, 0};
    std::uint32_t a[4]{}, b[2]{};
    if (thread_index() < 2) {
      a[0] = to_bits(thread_index() == 0 ? a0 : a1);
      b[0] = to_bits(thread_index() == 0 ? b0 : b1);
    }
    mma_tf32(d, a, b);
    if (thread_index() == 0) result = d[0];
  });
  return result;
}

}  // namespace

TEST_CASE("mma: the fragments are those of another source too") {
  // CUTLASS writes where a value of a lane is as digits times strides, lane = (4, 8), value = (2, 2) or (2, 2, 2), in
  // matrices counted down their columns: include/cute/atom/mma_traits_sm80.hpp, the ALayout, BLayout and CLayout of
  // SM80_16x8x8_F32TF32TF32F32_TN and SM80_16x8x16_F32F16F16F32_TN (that of bfloat16 is the same).
  struct strides {
    int lane[2], value[3];
    int of(int l, int v) const {
      return l % 4 * lane[0] + l / 4 * lane[1] + v % 2 * value[0] + v / 2 % 2 * value[1] + v / 4 * value[2];
    }
  };
  constexpr strides tf32_a{{16, 1}, {8, 64, 0}}, tf32_b{{8, 1}, {32, 0, 0}}, half_a{{32, 1}, {16, 8, 128}},
      half_b{{16, 1}, {8, 64, 0}}, c{{32, 1}, {16, 8, 0}};
  for (int l = 0; l < lanes; ++l) {
    const int group = l / 4, in_group = l % 4;
    for (int i = 0; i < 8; ++i) {
      CHECK(half_a.of(l, i) == half_a_row(group, i) + 16 * half_a_column(in_group, i));
      if (i >= 4) continue;
      CHECK(tf32_a.of(l, i) == tf32_a_row(group, i) + 16 * tf32_a_column(in_group, i));
      CHECK(half_b.of(l, i) == group + 8 * half_b_row(in_group, i));
      CHECK(c.of(l, i) == c_row(group, i) + 16 * c_column(in_group, i));
      if (i >= 2) continue;
      CHECK(tf32_b.of(l, i) == group + 8 * tf32_b_row(in_group, i));
    }
  }
}

TEST_CASE("mma: m16n8k8 of TF32 has its fragments where the manual says") {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const auto x = matrices<8>::random(seed);
    CHECK(multiplies_right(x, [&](float(&d)[4], int group, int in_group) {
      std::uint32_t a[4], b[2];
      for (int i = 0; i < 4; ++i) a[i] = to_tf32(x.a[tf32_a_row(group, i)][tf32_a_column(in_group, i)]);
      for (int i = 0; i < 2; ++i) b[i] = to_tf32(x.b[tf32_b_row(in_group, i)][group]);
      mma_tf32(d, a, b);
    }));
    // Words 1 and 2 of A the other way round, which is how m16n8k8 of half numbers would not have them either.
    CHECK_FALSE(multiplies_right(x, [&](float(&d)[4], int group, int in_group) {
      std::uint32_t a[4], b[2];
      for (int i = 0; i < 4; ++i) a[i] = to_tf32(x.a[tf32_a_row(group, i)][tf32_a_column(in_group, i)]);
      for (int i = 0; i < 2; ++i) b[i] = to_tf32(x.b[tf32_b_row(in_group, i)][group]);
      std::swap(a[1], a[2]);
      mma_tf32(d, a, b);
    }));
  }
}

namespace {

/// Whether a product of 16 x 8 x 16 numbers of two bytes has its fragments where the manual says; two(low, high) is a
/// word of them.
template <class Two, class Multiply>
bool multiplies_words(const Two& two, const Multiply& multiply, unsigned seed) {
  const auto x = matrices<16>::random(seed);
  return multiplies_right(x, [&](float(&d)[4], int group, int in_group) {
    const auto a_at = [&](int i) { return x.a[half_a_row(group, i)][half_a_column(in_group, i)]; };
    const auto b_at = [&](int i) { return x.b[half_b_row(in_group, i)][group]; };
    std::uint32_t a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = two(a_at(2 * i), a_at(2 * i + 1));
    for (int i = 0; i < 2; ++i) b[i] = two(b_at(2 * i), b_at(2 * i + 1));
    multiply(d, a, b);
  });
}

}  // namespace

TEST_CASE("mma: m16n8k16 of half numbers has its fragments where the manual says") {
  for (unsigned seed = 1; seed <= 5; ++seed)
    CHECK(multiplies_words(
        two_halves_of, [](auto& d, const auto& a, const auto& b) { mma_half(d, a, b); }, seed));
}

TEST_CASE("mma: m16n8k16 of bfloat16 numbers has the same fragments, and no number is too small for it") {
  const auto two = [](float low, float high) {
    return float_to_bfloat16(low) | static_cast<std::uint32_t>(float_to_bfloat16(high)) << 16;
  };
  for (unsigned seed = 1; seed <= 5; ++seed)
    CHECK(multiplies_words(
        two, [](auto& d, const auto& a, const auto& b) { mma_bfloat16(d, a, b); }, seed));
  float sum = 0;
  emulator::run(1, lanes, [&] {
    float d[4]{};
    const std::uint32_t a[4] = {two(0x1p-120f, 0x1p100f), 0, 0, 0}, b[2] = {two(0x1p60f, 0x1p-100f), 0};
    mma_bfloat16(d, a, b);
    if (thread_index() == 0) sum = d[0];
  });
  CHECK(sum == 4);
}

TEST_CASE("mma: TF32 keeps 11 bits, rounds ties away from 0, and the product looks at no others") {
  const auto rounded = [](float x) { return from_bits<float>(to_tf32(x)); };
  CHECK(rounded(1.0f) == 1.0f);
  CHECK(rounded(1.0f + 0x1p-10f) == 1.0f + 0x1p-10f);
  CHECK(rounded(1.0f + 0x1p-11f) == 1.0f + 0x1p-10f);
  CHECK(rounded(-1.0f - 0x1p-11f) == -1.0f - 0x1p-10f);
  CHECK(rounded(1.0f + 0x1.fp-12f) == 1.0f);
  CHECK(std::isnan(rounded(std::nanf(""))));
  CHECK(rounded(std::numeric_limits<float>::infinity()) == std::numeric_limits<float>::infinity());
  CHECK(corner(0, 1.0f + 0x1.fp-11f, 1.0f) == 1.0f);
}

TEST_CASE("mma: sums are cut, not rounded, as measured tensor cores do, and NaN stays") {
  CHECK(corner(1, 0x1p-23f, 1.0f) == 1.0f + 0x1p-23f);
  CHECK(corner(1, 0x1.8p-24f, 1.0f) == 1.0f);
  CHECK(corner(-1, -0x1.8p-24f, 1.0f) == -1.0f);
  // Two terms that together count are each cut off before.
  CHECK(corner(1, 0x1.8p-25f, 1.0f, 0x1.8p-25f, 1.0f) == 1.0f);
  CHECK(corner(1, 0x1p60f, 1.0f, -0x1p60f, 1.0f) == 0.0f);
  CHECK(std::isnan(corner(1, std::nanf(""), 1.0f)));
  CHECK(std::isnan(corner(1, std::numeric_limits<float>::infinity(), 0.0f)));
}

TEST_CASE("mma: ldmatrix gives each lane its 4 bytes of four matrices whose rows lie anywhere") {
  // As CUTLASS has it too: the 128 bits that lane l names are bits 128 l on, and word i of lane l is bits 32 l + 1024 i
  // (include/cute/atom/copy_traits_sm75.hpp, SM75_U32x4_LDSM_N).
  struct buffers {
    alignas(16) std::uint32_t rows[lanes + 3][4];
  };
  std::array<std::array<std::uint32_t, 4>, lanes> got{};
  // Rows in another order than the lanes that name them.
  const auto place = [](int lane) { return (lane * 7 + 3) % lanes; };
  emulator::run(1, lanes, [&] {
    auto& tile = shared<buffers>();
    const int lane = thread_index();
    for (std::uint32_t j = 0; j < 4; ++j) tile.rows[place(lane)][j] = static_cast<std::uint32_t>(lane) * 4 + j;
    sync();
    std::uint32_t words[4];
    load_matrices(words, tile.rows[place(lane)]);
    for (std::size_t i = 0; i < 4; ++i) got[static_cast<std::size_t>(lane)][i] = words[i];
  });
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    for (std::uint32_t i = 0; i < 4; ++i) CHECK(got[lane][i] == (32 * lane + 1024 * i) / 32);
}

TEST_CASE("mma: rows and copies that are not aligned are errors") {
  struct buffers {
    alignas(16) std::uint32_t words[64];
  };
  alignas(16) static std::uint32_t source[8]{};
  CHECK_THROWS_AS(emulator::run(1, lanes,
                                [] {
                                  std::uint32_t words[4];
                                  load_matrices(words, &shared<buffers>().words[1]);
                                }),
                  emulator::kernel_error);
  CHECK_THROWS_AS(emulator::run(1, lanes, [] { copy_async(shared<buffers>().words, source + 1); }),
                  emulator::kernel_error);
}

namespace {

enum class mistake { none, no_wait, waits_for_fewer, no_barrier, early_overwrite };

/// Sums tiles through two buffers as the mainloop does: a tile in flight beside the one in work.
template <mistake planted>
void pipeline(const float* in, float* out, int tiles) {
  struct buffers {
    alignas(16) float tile[2][256];
  };
  auto& memory = shared<buffers>();
  const int i = thread_index();
  const auto start = [&](int tile) { copy_async(&memory.tile[tile % 2][4 * i], in + tile * 256 + 4 * i); };
  start(0);
  commit_copies();
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    if (planted != mistake::early_overwrite) sync();
    if (tile + 1 < tiles) start(tile + 1);
    commit_copies();
    if (planted == mistake::waits_for_fewer) wait_copies<2>();
    if (planted != mistake::no_wait && planted != mistake::waits_for_fewer) wait_copies<1>();
    if (planted != mistake::no_barrier) sync();
    for (int j = 0; j < 4; ++j) sum += memory.tile[tile % 2][(4 * i + 128 + j) % 256];
  }
  out[i] = sum;
}

/// How often, in so many orders of the threads, the pipeline gave a wrong sum.
int failures(void (*kernel)(const float*, float*, int)) {
  constexpr int tiles = 5, threads = 64;
  alignas(16) static float in[tiles * 256];
  for (int i = 0; i < tiles * 256; ++i) in[i] = static_cast<float>(i);
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emulator::seed(seed);
    std::vector<float> out(threads);
    emulator::run(1, threads, [&] { kernel(in, out.data(), tiles); });
    bool right = true;
    for (int i = 0; i < threads; ++i) {
      float want = 0;
      for (int tile = 0; tile < tiles; ++tile)
        for (int j = 0; j < 4; ++j) want += in[tile * 256 + (4 * i + 128 + j) % 256];
      right = right && out[static_cast<std::size_t>(i)] == want;
    }
    failed += right ? 0 : 1;
  }
  return failed;
}

}  // namespace

TEST_CASE("mma: a copy arrives with its group, and every way to use it too early or too long shows") {
  CHECK(failures(pipeline<mistake::none>) == 0);
  CHECK(failures(pipeline<mistake::no_wait>) == 20);
  CHECK(failures(pipeline<mistake::waits_for_fewer>) == 20);
  CHECK(failures(pipeline<mistake::no_barrier>) > 5);
  CHECK(failures(pipeline<mistake::early_overwrite>) > 5);
}
