// SPDX-License-Identifier: Apache-2.0
// The exact overlap test against sets of bytes, and what calls accept and refuse because of it.
#include "expect_error.hpp"

#include <algorithm>
#include <random>
#include <set>

namespace {

using aft::any_view;
using aft::index_t;
using aft::checks::shared_memory;
using aft::test::check_parts;
using aft::test::error_of;

// The offsets in bytes, relative to `origin`, of every element's first byte.
std::vector<index_t> element_offsets(const any_view& v, const void* origin) {
  std::vector<index_t> offsets{static_cast<const char*>(v.data()) - static_cast<const char*>(origin)};
  for (std::size_t axis = 0; axis < v.rank(); ++axis) {
    std::vector<index_t> next;
    for (index_t i = 0; i < v.extent(axis); ++i) {
      for (index_t offset : offsets) next.push_back(offset + i * v.stride(axis) * aft::size_of(v.type()));
    }
    offsets = next;
  }
  return offsets;
}

std::multiset<index_t> bytes_of(const any_view& v, const void* origin) {
  std::multiset<index_t> bytes;
  for (index_t offset : element_offsets(v, origin)) {
    for (index_t i = 0; i < aft::size_of(v.type()); ++i) bytes.insert(offset + i);
  }
  return bytes;
}

bool brute_force_shares(const any_view& a, const any_view& b, const void* origin) {
  const auto in_a = bytes_of(a, origin);
  for (index_t byte : bytes_of(b, origin)) {
    if (in_a.count(byte) != 0) return true;
  }
  return false;
}

bool brute_force_shares_with_itself(const any_view& v, const void* origin) {
  const auto bytes = bytes_of(v, origin);
  for (index_t byte : bytes) {
    if (bytes.count(byte) > 1) return true;
  }
  return false;
}

// Small strides, so that about half of the pairs overlap and many of the others are interleaved without overlap.
template <class T>
any_view random_view(std::mt19937& rng, T* middle) {
  const auto pick = [&](index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(rng); };
  const index_t largest = pick(1, 4) == 1 ? 3 : 24;
  T* const data = middle + pick(-30, 30);
  const auto stride = [&] { return pick(0, 8) == 0 ? 0 : pick(-largest, largest) * (pick(0, 1) == 0 ? 2 : 1); };
  switch (pick(1, 3)) {
    case 1: return aft::tensor_view<T, 1>{data, {pick(0, 5)}, {stride()}};
    case 2: return aft::tensor_view<T, 2>{data, {pick(1, 4), pick(1, 5)}, {stride(), stride()}};
    default: return aft::tensor_view<T, 3>{data, {pick(1, 3), pick(1, 4), pick(0, 4)}, {stride(), stride(), stride()}};
  }
}

}  // namespace

TEST_CASE("two views: the same answer as sets of bytes") {
  std::mt19937 rng(7);
  std::vector<double> memory(1024);
  auto* const floats = reinterpret_cast<float*>(memory.data()) + 1024;
  auto* const halves = reinterpret_cast<aft::half*>(memory.data()) + 2048;
  int overlapping = 0, apart = 0, ranges_only = 0;
  for (int round = 0; round < 6000; ++round) {
    const any_view a = round % 2 == 0 ? random_view(rng, floats) : random_view(rng, memory.data() + 512);
    const any_view b = round % 3 == 0 ? random_view(rng, halves) : random_view(rng, floats);
    const bool expected = brute_force_shares(a, b, memory.data());
    REQUIRE(aft::checks::share_memory(a, b) == (expected ? shared_memory::some : shared_memory::none));
    REQUIRE(aft::checks::share_memory(b, a) == (expected ? shared_memory::some : shared_memory::none));
    (expected ? overlapping : apart) += 1;
    const auto offsets_a = element_offsets(a, memory.data());
    const auto offsets_b = element_offsets(b, memory.data());
    if (!expected && !offsets_a.empty() && !offsets_b.empty()) {
      const auto [low_a, high_a] = std::minmax_element(offsets_a.begin(), offsets_a.end());
      const auto [low_b, high_b] = std::minmax_element(offsets_b.begin(), offsets_b.end());
      ranges_only += *low_a <= *high_b && *low_b <= *high_a ? 1 : 0;
    }
  }
  // The random views must reach the cases that matter: interleaved views whose ranges of addresses overlap.
  CHECK(overlapping > 500);
  CHECK(apart > 500);
  CHECK(ranges_only > 300);
}

TEST_CASE("one view: the same answer as sets of bytes") {
  std::mt19937 rng(11);
  std::vector<double> memory(1024);
  int overlapping = 0, apart = 0;
  for (int round = 0; round < 6000; ++round) {
    const any_view v = random_view(rng, memory.data() + 512);
    const bool expected = brute_force_shares_with_itself(v, memory.data());
    REQUIRE(aft::checks::shares_with_itself(v) == (expected ? shared_memory::some : shared_memory::none));
    (expected ? overlapping : apart) += 1;
  }
  CHECK(overlapping > 500);
  CHECK(apart > 500);
}

TEST_CASE("large layouts are decided at once, and strides without any order are given up on") {
  std::vector<float> memory(8);
  const index_t n = index_t{1} << 20;
  SUBCASE("slices of a packed buffer") {
    const aft::tensor_view<float, 3> dq{memory.data(), {64, n, 512}, {n * 1536, 1536, 1}};
    const aft::tensor_view<float, 3> dk{memory.data() + 512, {64, n, 512}, {n * 1536, 1536, 1}};
    const aft::tensor_view<float, 3> wide{memory.data() + 511, {64, n, 512}, {n * 1536, 1536, 1}};
    CHECK(aft::checks::share_memory(dq, dk) == shared_memory::none);
    CHECK(aft::checks::share_memory(dq, wide) == shared_memory::some);
    CHECK(aft::checks::shares_with_itself(dq) == shared_memory::none);
  }
  SUBCASE("different pitches, one on even and one on odd elements") {
    const aft::tensor_view<float, 2> a{memory.data(), {n, 100}, {1000, 2}};
    const aft::tensor_view<float, 2> b{memory.data() + 1, {n, 100}, {1002, 2}};
    CHECK(aft::checks::share_memory(a, b) == shared_memory::none);
  }
  SUBCASE("irregular") {
    // Sixteen steps without a common divisor or any order of magnitude between them: a knapsack problem.
    aft::tensor_view<float, 8> views[2];
    std::mt19937_64 rng(1);
    for (auto& v : views) {
      std::array<index_t, 8> extents{}, strides{};
      for (std::size_t i = 0; i < 8; ++i) {
        extents[i] = 4;
        strides[i] = (index_t{1} << 41) + 2 * static_cast<index_t>(rng() % (std::uint64_t{1} << 40));
      }
      v = {memory.data(), extents, strides};
    }
    const aft::tensor_view<float, 8> odd{memory.data() + 1, views[1].extents(), views[1].strides()};
    CHECK(aft::checks::share_memory(views[0], odd) == shared_memory::none);  // strides are even: one division tells
    auto strides = views[1].strides();
    strides[0] += 1;
    const aft::tensor_view<float, 8> irregular{memory.data() + 17, views[1].extents(), strides};
    CHECK(aft::checks::share_memory(views[0], irregular) == shared_memory::unknown);
  }
}

TEST_CASE("calls accept slices of packed buffers") {
  constexpr index_t B = 2, T = 6, d = 4;
  std::vector<float> packed(B * T * 4 * d, 0.25f), gradients(B * T * 3 * d, 0.0f), w(T * T, 0.5f);
  const auto slice = [&](std::vector<float>& buffer, index_t slices, index_t which) {
    return aft::tensor_view<float, 3>{buffer.data() + which * d, {B, T, d}, {T * slices * d, slices * d, 1}};
  };
  const auto q = slice(packed, 4, 0), k = slice(packed, 4, 1), v = slice(packed, 4, 2), y = slice(packed, 4, 3);
  const aft::dense_bias bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
  CHECK(error_of([&] { aft::full(q, k, v, bias, y); }) == "no shape_error");
  CHECK(error_of([&] {
          aft::full_backward(q, k, v, bias, y, slice(gradients, 3, 0), slice(gradients, 3, 1), slice(gradients, 3, 2),
                             aft::no_grad);
        }) == "no shape_error");
  // One element further to the left, and dk's first channel is dq's last.
  const aft::tensor_view<float, 3> shifted{gradients.data() + d - 1, {B, T, d}, {T * 3 * d, 3 * d, 1}};
  const auto message =
      error_of([&] { aft::simple_backward(q, k, v, y, slice(gradients, 3, 0), shifted, slice(gradients, 3, 2)); });
  check_parts(message, {"aft::simple_backward", "'dk'", "'dq'", "overlap", "12 bytes"});
}

TEST_CASE("y may be exactly q, and nothing else") {
  constexpr index_t B = 2, T = 6, d = 4;
  std::vector<float> memory(1000, 0.25f), w(T * T, 0.5f);
  using view = aft::tensor_view<float, 3>;
  const view q{memory.data(), {B, T, d}}, k{memory.data() + 100, {B, T, d}}, v{memory.data() + 200, {B, T, d}};
  const aft::dense_bias bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
  const auto run = [&](const view& y, const aft::options& opt = {}) {
    const std::vector<float> before = memory;
    std::string message = error_of([&] { aft::full(q, k, v, bias, y, opt); });
    if (message != "no shape_error") CHECK(memory == before);
    return message;
  };
  CHECK(run(q) == "no shape_error");
  check_parts(run(view{q.data() + 1, {B, T, d}}), {"aft::full", "'y'", "'q'", "4 bytes"});
  check_parts(run(view{q.data(), {B, T, d}, {d, B * d, 1}}), {"'y'", "'q'"});
  check_parts(run(k), {"'y'", "'k'"});
  check_parts(run(view{v.data() + B * T * d - 1, {B, T, d}}), {"'y'", "'v'"});
  check_parts(run(view{memory.data() + 400, {B, T, d}, {1, 1, 1}}), {"'y'", "(1, 1, 1)", "overlap"});
  // Unread, q is no obstacle.
  CHECK(run(view{q.data() + 1, {B, T, d}}, {.gate_fn = aft::gate::none}) == "no shape_error");
  // The exception is for y: other outputs may not lie on q.
  const view y{memory.data() + 400, {B, T, d}};
  check_parts(run(y, {.average = q}), {"'average'", "'q'"});
  check_parts(run(y, {.average = y}), {"'average'", "'y'"});
  check_parts(run(y, {.lse = view{y.data() + 7, {B, T, d}}}), {"'lse'", "'y'", "28 bytes"});
  const aft::tensor_view<std::uint8_t, 3> mask{reinterpret_cast<std::uint8_t*>(y.data()) + 3, {1, 1, T}};
  check_parts(run(y, {.mask = mask}), {"'y'", "'mask'", "-3 bytes"});
}

TEST_CASE("y may be q seen with another rank") {
  std::vector<float> memory(24, 0.25f), k(24, 0.5f);
  const aft::tensor_view<float, 3> q{memory.data(), {1, 6, 4}};
  const aft::tensor_view<float, 2> y{memory.data(), {6, 4}};
  const aft::tensor_view<const float, 2> keys{k.data(), {6, 4}};
  CHECK(error_of([&] { aft::simple(q, keys, keys, y); }) == "no shape_error");
}
