// SPDX-License-Identifier: Apache-2.0
// A bias that is the same for all heads, or for the whole batch, by a stride of 0: its gradient may have an extent of 1
// there and is then the sum, bit for bit what the same bias without that axis gets.
#include <aft/aft.hpp>
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::check_parts;
using aft::test::error_of;

constexpr index_t B = 3, H = 2, T = 11, d = 4, n = 3;

template <std::size_t Rank>
using in = aft::tensor_view<const float, Rank>;
template <std::size_t Rank>
using out = aft::tensor_view<float, Rank>;

/// The tensors of a call, and two sets of gradients to be compared.
struct calls {
  std::vector<float> memory;
  std::vector<float> first[4], second[4];
  in<3> x, k;

  calls() : memory(B * H * T * T) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    x = {memory.data(), {B, T, d}};
    k = {memory.data() + 5, {B, T, d}};
    for (auto* set : {first, second})
      for (int i = 0; i < 4; ++i) set[i].assign(B * H * T * T, 7.0f);
  }
  out<3> keys(std::vector<float>& at) const { return {at.data(), {B, T, d}}; }

  /// run(dk, dv, place of the bias's gradient, and of a second factor's) for both.
  template <class A, class Z>
  void expect_same(const A& summed, const Z& plain) {
    summed(keys(first[0]), keys(first[1]), first[2].data(), first[3].data());
    plain(keys(second[0]), keys(second[1]), second[2].data(), second[3].data());
    for (int i = 0; i < 4; ++i)
      CHECK(std::memcmp(first[i].data(), second[i].data(), first[i].size() * sizeof(float)) == 0);
    CHECK(first[2][0] != 7.0f);
  }
};

}  // namespace

TEST_CASE("a dense bias of a stride of 0 over heads, over the batch, over both") {
  calls c;
  const float* const w = c.memory.data() + 3;
  const auto call = [&](const auto& bias, auto extents) {
    return [&c, bias, extents](out<3> dk, out<3> dv, float* dw, float*) {
      const aft::dense_bias gradient{out<extents.size()>{dw, extents}};
      aft::full_backward(c.x, c.k, c.x, bias, c.k, aft::no_grad, dk, dv, gradient);
    };
  };
  const auto windowed = [&](const auto& bias, auto extents) {
    return [&c, bias, extents](out<3> dk, out<3> dv, float* dw, float*) {
      const aft::dense_bias gradient{out<extents.size()>{dw, extents}};
      aft::local_backward(c.x, c.k, c.x, bias, aft::window{3, 2}, c.k, aft::no_grad, dk, dv, gradient);
    };
  };
  using three = std::array<index_t, 3>;
  using four = std::array<index_t, 4>;
  const aft::dense_bias heads{in<3>{w, {H, T, T}, {0, T, 1}}}, plain{in<3>{w, {1, T, T}}};
  const aft::dense_bias both{in<4>{w, {B, H, T, T}, {0, 0, T, 1}}}, one{in<4>{w, {1, 1, T, T}}};
  const aft::dense_bias batch{in<4>{w, {B, H, T, T}, {0, T * T, T, 1}}}, shared{in<4>{w, {1, H, T, T}}};
  c.expect_same(call(heads, three{1, T, T}), call(plain, three{1, T, T}));
  c.expect_same(call(both, four{1, 1, T, T}), call(one, four{1, 1, T, T}));
  c.expect_same(call(batch, four{1, H, T, T}), call(shared, four{1, H, T, T}));
  c.expect_same(windowed(heads, three{1, T, T}), windowed(plain, three{1, T, T}));
  c.expect_same(windowed(batch, four{1, H, T, T}), windowed(shared, four{1, H, T, T}));
}

TEST_CASE("a banded bias, factors and a filter of a stride of 0 over heads") {
  calls c;
  const float* const w = c.memory.data() + 3;
  const aft::window win{2, 1};
  const auto banded = [&](index_t heads, index_t stride) {
    return [&c, w, win, heads, stride](out<3> dk, out<3> dv, float* dw, float*) {
      aft::local_backward(c.x, c.k, c.x, aft::banded_bias{in<3>{w, {heads, T, 4}, {stride, 4, 1}}}, win, c.k,
                          aft::no_grad, dk, dv, aft::banded_bias{out<3>{dw, {1, T, 4}}});
    };
  };
  c.expect_same(banded(H, 0), banded(1, 1));
  const auto factors = [&](index_t heads, index_t stride) {
    return [&c, w, heads, stride](out<3> dk, out<3> dv, float* du, float* df) {
      aft::full_backward(c.x, c.k, c.x,
                         aft::factorized_bias{in<3>{w, {heads, T, n}, {stride, n, 1}}, in<3>{w + 9, {H, T, n}}}, c.k,
                         aft::no_grad, dk, dv, aft::factorized_bias{out<3>{du, {1, T, n}}, out<3>{df, {H, T, n}}});
    };
  };
  c.expect_same(factors(H, 0), factors(1, 1));
  const auto filter = [&](index_t heads, index_t stride) {
    return [&c, w, heads, stride](out<3> dk, out<3> dv, float* dr, float*) {
      aft::conv_backward(c.x, c.k, c.x, in<2>{w, {heads, 5}, {stride, 1}}, c.k, aft::no_grad, dk, dv,
                         out<2>{dr, {1, 5}});
    };
  };
  c.expect_same(filter(H, 0), filter(1, 1));
}

TEST_CASE("an axis that is not broadcast needs its whole extent, one that is may have it") {
  calls c;
  float* const at = c.first[0].data();
  const auto run = [&](const in<3>& w, const out<3>& dw) {
    return error_of([&] {
      aft::full_backward(c.x, c.k, c.x, aft::dense_bias{w}, c.k, aft::no_grad, aft::no_grad, aft::no_grad,
                         aft::dense_bias{dw});
    });
  };
  check_parts(run({c.memory.data(), {H, T, T}}, {at, {1, T, T}}), {"'dbias.w'", "extent 0 to be 2", "got 1"});
  check_parts(run({c.memory.data(), {H, T, T}, {T * T, 0, 1}}, {at, {H, 1, T}}), {"'dbias.w'", "extent 1 to be 11"});
  CHECK(run({c.memory.data(), {H, T, T}, {0, T, 1}}, {at, {H, T, T}}) == "no shape_error");
  check_parts(run({c.memory.data(), {H, T, T}, {0, T, 1}}, {at, {3, T, T}}), {"'dbias.w'", "extent 0 to be 2"});
}
