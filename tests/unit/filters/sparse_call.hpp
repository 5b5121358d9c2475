// SPDX-License-Identifier: Apache-2.0
/// @file sparse_call.hpp  Random calls of aft::conv with a sparse filter.
#pragma once

#include "engines/engine.hpp"
#include "harness/tolerance.hpp"

#include <aft/reference/reference.hpp>

#include <algorithm>
#include <array>
#include <random>
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

/// A call's shapes and its numbers: (B, positions..., channels) with `Axes` axes of positions.
template <class T, std::size_t Axes>
struct random_call {
  index_t B = 2;
  std::array<index_t, Axes> queries{}, grid{};
  index_t d = 6, hk = 6, H = 3, m = 2;
  std::vector<T> q{}, k{}, v{};
  std::vector<aft::compute_t<T>> values{};
  std::vector<std::int32_t> taps{};  ///< [head][tap][axis]
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
    const auto fill = [&](std::vector<T>& x, index_t n, double s) {
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
  auto query_view(const std::vector<T>& x) const { return tensor_view<const T, Axes + 2>{x.data(), shape(queries, d)}; }
  auto key_view() const { return tensor_view<const T, Axes + 2>{k.data(), shape(grid, hk)}; }
  auto value_view() const { return tensor_view<const T, Axes + 2>{v.data(), shape(grid, d)}; }
  auto filter() const {
    return aft::sparse_filter{tensor_view<const std::int32_t, 3>{taps.data(), {H, m, static_cast<index_t>(Axes)}},
                              tensor_view<const aft::compute_t<T>, 2>{values.data(), {H, m}}};
  }
};

template <class Real>
std::vector<long double> widen(const std::vector<Real>& x) {
  std::vector<long double> wide;
  for (const Real& e : x) wide.push_back(static_cast<long double>(e));
  return wide;
}

}  // namespace aft::test::sparse
