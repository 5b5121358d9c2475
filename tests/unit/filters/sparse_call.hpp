// SPDX-License-Identifier: Apache-2.0
/// @file sparse_call.hpp  Random calls of aft::conv with a sparse filter, on the host or on the emulated device.
#pragma once

#include "call/tensor_memory.hpp"
#include "engines/engine.hpp"
#include "engines/engines.hpp"
#include "harness/harness.hpp"
#include "harness/tolerance.hpp"

#include <aft/reference/reference.hpp>

#include <algorithm>
#include <array>
#include <random>
#include <type_traits>
#include <variant>
#include <vector>

namespace aft::test::sparse {

template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return T(static_cast<float>(x));
  }
}

/// Memory that host and device both read and write.
template <class T>
using numbers = std::vector<T, tensor_allocator<T>>;

/// The same memory as the space of an executor sees it; of no_grad itself.
template <class Space, class T, std::size_t Rank>
tensor_view<T, Rank, Space> in(const tensor_view<T, Rank>& v) {
  return {v.data(), v.extents(), v.strides()};
}
template <class Space, class Taps, class Values>
auto in(const aft::sparse_filter<Taps, Values>& f) {
  return aft::sparse_filter{in<Space>(f.taps), in<Space>(f.values)};
}
template <class Space>
aft::no_grad_t in(aft::no_grad_t none) {
  return none;
}
template <class Space>
aft::options in(aft::options o) {
  if constexpr (std::is_same_v<Space, device_space>) {
    for (any_view* v : {&o.mask, &o.key_lengths, &o.query_lengths, &o.lse, &o.average}) {
      std::array<index_t, any_view::max_rank> extents{}, strides{};
      for (std::size_t i = 0; i < v->rank(); ++i) extents[i] = v->extent(i), strides[i] = v->stride(i);
      if (!v->empty()) *v = any_view(v->data(), v->type(), v->rank(), extents.data(), strides.data(), true);
    }
  }
  return o;
}

/// f(executor, its space).
template <class F>
void run_on(const any_executor& exec, const F& f) {
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        f(e, std::type_identity<std::conditional_t<std::is_same_v<E, cuda>, device_space, host_space>>{});
      },
      exec);
  finish_device_work();
}

/// aft::conv and its gradients, of views that the host made.
template <class Q, class K, class V, class Filter, class Y>
void call_conv(const any_executor& exec, const Q& q, const K& k, const V& v, const Filter& filter, const Y& y,
               const aft::options& o = {}) {
  run_on(exec, [&]<class S>(const auto& e, std::type_identity<S>) {
    aft::conv(e, in<S>(q), in<S>(k), in<S>(v), in<S>(filter), in<S>(y), in<S>(o));
  });
}
template <class Q, class K, class V, class Filter, class DY, class DQ, class DK, class DV, class DFilter>
void call_conv_backward(const any_executor& exec, const Q& q, const K& k, const V& v, const Filter& filter,
                        const DY& dy, const DQ& dq, const DK& dk, const DV& dv, const DFilter& dfilter,
                        const aft::options& o = {}) {
  run_on(exec, [&]<class S>(const auto& e, std::type_identity<S>) {
    aft::conv_backward(e, in<S>(q), in<S>(k), in<S>(v), in<S>(filter), in<S>(dy), in<S>(dq), in<S>(dk), in<S>(dv),
                       in<S>(dfilter), in<S>(o));
  });
}

/// A call's shapes and its numbers: (B, positions..., channels) with `Axes` axes of positions.
template <class T, std::size_t Axes>
struct random_call {
  index_t B = 2;
  std::array<index_t, Axes> queries{}, grid{};
  index_t d = 6, hk = 6, H = 3, m = 2;
  numbers<T> q{}, k{}, v{};
  numbers<aft::compute_t<T>> values{};
  numbers<std::int32_t> taps{};  ///< [head][tap][axis]
  aft::options o{};

  static index_t product(const std::array<index_t, Axes>& n) {
    index_t all = 1;
    for (index_t x : n) all *= x;
    return all;
  }

  /// Random numbers, and taps that differ within a head.
  void draw(unsigned seed, double scale = 1, double value_scale = 1, index_t reach = 3) {
    if (queries == std::array<index_t, Axes>{}) queries = grid;
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](numbers<T>& x, index_t n, double s) {
      x.clear();
      for (index_t i = 0; i < n; ++i) x.push_back(number<T>(s * normal(rng)));
    };
    fill(q, B * product(queries) * d, 1);
    fill(k, B * product(grid) * hk, scale);
    fill(v, B * product(grid) * d, 1);
    values.clear();
    taps.clear();
    std::uniform_int_distribution<index_t> offset(-reach, o.causal ? 0 : reach);
    for (index_t h = 0; h < H; ++h) {
      std::vector<std::array<index_t, Axes>> own;
      while (static_cast<index_t>(own.size()) < m) {
        std::array<index_t, Axes> tap;
        for (index_t& x : tap) x = offset(rng);
        if (std::find(own.begin(), own.end(), tap) == own.end()) own.push_back(tap);
      }
      for (const auto& tap : own) {
        for (index_t x : tap) taps.push_back(static_cast<std::int32_t>(x));
        values.push_back(static_cast<aft::compute_t<T>>(value_scale * normal(rng)));
      }
    }
  }

  std::array<index_t, Axes + 2> shape(const std::array<index_t, Axes>& positions, index_t channels) const {
    std::array<index_t, Axes + 2> s{};
    s[0] = B;
    for (std::size_t a = 0; a < Axes; ++a) s[a + 1] = positions[a];
    s[Axes + 1] = channels;
    return s;
  }
  auto query_view(const numbers<T>& x) const { return tensor_view<const T, Axes + 2>{x.data(), shape(queries, d)}; }
  auto key_view() const { return tensor_view<const T, Axes + 2>{k.data(), shape(grid, hk)}; }
  auto value_view() const { return tensor_view<const T, Axes + 2>{v.data(), shape(grid, d)}; }
  auto filter() const {
    return aft::sparse_filter{tensor_view<const std::int32_t, 3>{taps.data(), {H, m, static_cast<index_t>(Axes)}},
                              tensor_view<const aft::compute_t<T>, 2>{values.data(), {H, m}}};
  }
};

template <class Numbers>
std::vector<long double> widen(const Numbers& x) {
  std::vector<long double> wide;
  for (const auto& e : x) wide.push_back(static_cast<long double>(e));
  return wide;
}

}  // namespace aft::test::sparse
