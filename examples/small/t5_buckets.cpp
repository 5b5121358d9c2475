// SPDX-License-Identifier: Apache-2.0
//
// Relative positions in buckets (T5, Raffel et al., arXiv 1910.10683) on AFT-full: a table of 32 numbers a head is the
// bias, and its gradient is collected row by row.

#include <aft/aft.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace {

using aft::index_t;

constexpr index_t buckets = 32;

/// Exact up to 8 positions to either side, then by the logarithm of the distance up to 128.
std::size_t bucket(index_t h, index_t t, index_t s) noexcept {
  const index_t distance = s > t ? s - t : t - s;
  index_t place = distance;
  if (distance >= 8)
    place = std::min<index_t>(8 + static_cast<index_t>(2 * std::log2(static_cast<double>(distance) / 8)), 15);
  return static_cast<std::size_t>(h * buckets + (s > t ? 16 : 0) + place);
}

std::vector<float> ripple(index_t n, float step) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(step * static_cast<float>(i));
  return x;
}

}  // namespace

int main() {
  constexpr index_t T = 200, d = 16, heads = 2, parts = 4;
  const auto q = ripple(T * d, 0.1F), k = ripple(T * d, 0.7F), v = ripple(T * d, 0.3F), dy = ripple(T * d, 0.23F);
  auto table = ripple(heads * buckets, 1.1F);
  const auto in = [](const std::vector<float>& x) { return aft::as_view(x.data(), {T, d}); };
  const aft::generated_bias bias{heads, [&](index_t, index_t h, index_t t, index_t s0, std::span<float> row) noexcept {
                                   for (std::size_t i = 0; i < row.size(); ++i)
                                     row[i] = table[bucket(h, t, s0 + static_cast<index_t>(i))];
                                 }};

  // A table for each part: calls of one part never overlap, and its sums do not depend on the number of threads.
  std::vector<float> tables(static_cast<std::size_t>(parts) * table.size());
  const aft::generated_bias_gradient dbias{
      [&](index_t part, index_t, index_t h, index_t t, index_t s0, std::span<const float> dw) noexcept {
        float* const own = tables.data() + static_cast<std::size_t>(part) * table.size();
        for (std::size_t i = 0; i < dw.size(); ++i) own[bucket(h, t, s0 + static_cast<index_t>(i))] += dw[i];
      },
      parts};
  aft::full_backward(in(q), in(k), in(v), bias, in(dy), aft::no_grad, aft::no_grad, aft::no_grad, dbias);
  std::vector<float> gradient(table.size());
  for (std::size_t i = 0; i < tables.size(); ++i) gradient[i % table.size()] += tables[i];

  // The loss sum dy y, and its slope along one bucket.
  const auto loss = [&] {
    std::vector<float> y(q.size());
    aft::full(in(q), in(k), in(v), bias, aft::as_view(y.data(), {T, d}));
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(dy[i]) * static_cast<double>(y[i]);
    return sum;
  };
  const std::size_t chosen = bucket(1, 50, 47);
  const float step = 0.01F, before = table[chosen];
  table[chosen] = before + step;
  const double above = loss();
  table[chosen] = before - step;
  const double slope = (above - loss()) / (2 * static_cast<double>(step));
  const bool agrees = std::abs(slope - static_cast<double>(gradient[chosen])) <= 1e-3 + 1e-2 * std::abs(slope);
  std::printf("gradient of one bucket %.4f, by differences %.4f\n", static_cast<double>(gradient[chosen]), slope);
  return agrees ? 0 : 1;
}
