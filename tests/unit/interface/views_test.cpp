// SPDX-License-Identifier: Apache-2.0
// tensor_view, any_view and window: indexing, conversions, slices.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

using aft::index_t;
using aft::tensor_view;

namespace {

std::vector<float> counting(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace

TEST_CASE("row-major by default") {
  auto memory = counting(24);
  const tensor_view<float, 3> v{memory.data(), {2, 3, 4}};
  CHECK(v.strides() == std::array<index_t, 3>{12, 4, 1});
  CHECK(v.extents() == std::array<index_t, 3>{2, 3, 4});
  CHECK(v.size() == 24);
  CHECK(v(1, 2, 3) == 23.0f);
  CHECK(v(0, 1, 2) == 6.0f);
  v(1, 0, 0) = -1.0f;
  CHECK(memory[12] == -1.0f);
}

TEST_CASE("strides count elements and may be negative or zero") {
  auto memory = counting(24);
  const tensor_view<const float, 2> reversed{memory.data() + 23, {4, 3}, {-6, -2}};
  CHECK(reversed(0, 0) == 23.0f);
  CHECK(reversed(3, 2) == 1.0f);
  const tensor_view<const float, 2> broadcast{memory.data(), {5, 3}, {0, 1}};
  CHECK(broadcast(4, 2) == 2.0f);
}

TEST_CASE("extents and strides take any integer type in braces") {
  auto memory = counting(24);
  const std::size_t n = 2;
  const int m = 3;
  const tensor_view<float, 2> v{memory.data(), {n, m}, {m, 1}};
  CHECK(v(1, 2) == 5.0f);
}

TEST_CASE("a view is small, trivially copyable, and converts to a view of const only") {
  static_assert(std::is_trivially_copyable_v<tensor_view<float, 3>>);
  static_assert(std::is_convertible_v<tensor_view<float, 3>, tensor_view<const float, 3>>);
  static_assert(!std::is_convertible_v<tensor_view<const float, 3>, tensor_view<float, 3>>);
  static_assert(!std::is_convertible_v<tensor_view<float, 3, aft::device_space>, tensor_view<const float, 3>>);
  static_assert(!std::is_convertible_v<tensor_view<float, 2>, tensor_view<float, 3>>);
  static_assert(sizeof(index_t) == 8);
  const tensor_view<float, 2> empty;
  CHECK(empty.data() == nullptr);
  CHECK(empty.size() == 0);
}

TEST_CASE("offsets are 64-bit") {
  // Addresses are computed, not touched: the stride alone is beyond 32 bits.
  char byte = 'x';
  const index_t far = index_t{1} << 40;
  const tensor_view<char, 2> v{&byte, {1, 1}, {far, 1}};
  CHECK(v(0, 0) == 'x');
  const tensor_view<char, 2> large{nullptr, {far, 4}};
  CHECK(large.size() == far * 4);
  CHECK(large.stride(0) == 4);
}

TEST_CASE("permute reads a channels-first tensor as (batch, time, channels)") {
  auto memory = counting(24);
  const tensor_view<const float, 3> channels_first{memory.data(), {2, 4, 3}};
  const auto v = channels_first.permute({0, 2, 1});
  CHECK(v.extents() == std::array<index_t, 3>{2, 3, 4});
  for (index_t b = 0; b < 2; ++b) {
    for (index_t t = 0; t < 3; ++t) {
      for (index_t c = 0; c < 4; ++c) CHECK(v(b, t, c) == channels_first(b, c, t));
    }
  }
}

TEST_CASE("subview: a block, and one slice per axis") {
  auto memory = counting(24);
  const tensor_view<float, 3> v{memory.data(), {2, 3, 4}};
  const auto block = v.subview({1, 1, 2}, {1, 2, 2});
  CHECK(block.extents() == std::array<index_t, 3>{1, 2, 2});
  CHECK(block(0, 0, 0) == v(1, 1, 2));
  CHECK(block(0, 1, 1) == v(1, 2, 3));
  const auto matrix = v.subview(1, aft::all, aft::range{1, 3});
  static_assert(decltype(matrix)::rank() == 2);
  CHECK(matrix.extents() == std::array<index_t, 2>{3, 2});
  CHECK(matrix(2, 1) == v(1, 2, 2));
  const auto column = v.subview(0, aft::all, 3);
  CHECK(column.stride(0) == 4);
  CHECK(column(1) == v(0, 1, 3));
  const tensor_view<float, 2> null{nullptr, {4, 4}};
  CHECK(null.subview({1, 1}, {2, 2}).data() == nullptr);
}

TEST_CASE("any_view remembers type, rank, space and constness") {
  auto memory = counting(24);
  const tensor_view<float, 3> v{memory.data(), {2, 3, 4}, {12, 1, 3}};
  const aft::any_view any = v;
  CHECK_FALSE(any.empty());
  CHECK(any.type() == aft::dtype::f32);
  CHECK(any.rank() == 3);
  CHECK(any.extent(1) == 3);
  CHECK(any.stride(2) == 3);
  CHECK(any.writable());
  CHECK_FALSE(any.on_device());
  CHECK(any.data() == memory.data());
  CHECK_FALSE(aft::any_view(tensor_view<const float, 3>(v)).writable());
  CHECK(aft::any_view(tensor_view<aft::half, 1, aft::device_space>{}).on_device());
  CHECK(aft::any_view().empty());
  // Given, though it has no elements.
  CHECK_FALSE(aft::any_view(tensor_view<float, 1>{}).empty());
}

TEST_CASE("a stride that leads to no element may be any number") {
  auto memory = counting(24);
  for (index_t any : {INT64_MAX, INT64_MIN}) {
    const tensor_view<float, 3> v{memory.data(), {1, 3, 4}, {any, 4, 1}};
    CHECK(v(0, 2, 3) == 11.0f);
    CHECK(v.permute({1, 2, 0})(2, 3, 0) == 11.0f);
    CHECK(v.subview(0, aft::all, 3)(2) == 11.0f);
    // An empty part may begin where the axis ends.
    CHECK(v.subview({1, 2, 0}, {0, 1, 4}).size() == 0);
    CHECK(v.subview(aft::range{1, 1}, 2, aft::all).size() == 0);
    const aft::any_view erased = v;
    CHECK(erased.stride(0) == 0);
    CHECK(erased.stride(1) == 4);
    CHECK(erased.stride(2) == 1);
    const aft::any_view one = tensor_view<float, 2>{memory.data(), {3, 1}, {4, any}};
    CHECK(one.stride(0) == 4);
    CHECK(one.stride(1) == 1);
    const tensor_view<float, 3> empty{memory.data(), {0, 5, 4}, {any, any, any}};
    CHECK(empty.subview({0, 2, 3}, {0, 3, 1}).data() == memory.data());
    CHECK(empty.subview(aft::all, 3, 2).size() == 0);
    CHECK(aft::any_view(empty).stride(1) == 0);
  }
  // Row-major strides beside an extent of 0, whose product does not fit.
  const index_t far = index_t{1} << 40;
  CHECK(tensor_view<float, 3>{nullptr, {0, far, far}}.size() == 0);
}

TEST_CASE("windows") {
  CHECK(aft::window::strict(3).width() == 5);
  CHECK(aft::window::inclusive(3).width() == 7);
  CHECK(aft::window::strict(1).width() == 1);
  CHECK(aft::window::strict(0).width() == 0);
  CHECK(aft::window{.before = 4, .after = 0}.width() == 5);
  CHECK(aft::window{.before = -2, .after = 5}.width() == 4);
}

TEST_CASE("biases deduce their views") {
  auto memory = counting(64);
  const tensor_view<const float, 2> w{memory.data(), {4, 4}};
  const tensor_view<const float, 3> u{memory.data(), {2, 4, 3}};
  const aft::dense_bias dense{w};
  const aft::banded_bias banded{w};
  const aft::factorized_bias factors{u, w};
  static_assert(std::is_same_v<decltype(dense), const aft::dense_bias<tensor_view<const float, 2>>>);
  CHECK(dense.w(1, 1) == 5.0f);
  CHECK(banded.w.extent(0) == 4);
  CHECK(factors.u(1, 0, 0) == 12.0f);
  CHECK(factors.v(1, 0) == 4.0f);
}
