// SPDX-License-Identifier: Apache-2.0
//
// ALiBi (Press et al., arXiv 2108.12409) on AFT-full: the bias is a slope of each head times the distance. It is made
// row by row where it is needed, so that no T x T numbers are stored and the sequence may have any length.

#include <aft/aft.hpp>

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace {

using aft::index_t;

constexpr index_t heads = 4, channels = 32;

/// row[i] = -slope (t - s0 - i). What causal order hides is never asked for.
void alibi(index_t, index_t h, index_t t, index_t s0, std::span<float> row) noexcept {
  const float slope = std::exp2(-8.0F * static_cast<float>(h + 1) / heads);
  const float first = static_cast<float>(t - s0);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = -slope * (first - static_cast<float>(i));
}

std::vector<float> wave(index_t n, float step) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(step * static_cast<float>(i));
  return x;
}

std::vector<float> average(index_t T, index_t queries) {
  const auto q = wave(T * channels, 0.1F), k = wave(T * channels, 0.7F), v = wave(T * channels, 0.3F);
  std::vector<float> y(static_cast<std::size_t>(queries * channels));
  const index_t first = T - queries;
  aft::full(aft::as_view(q.data() + first * channels, {queries, channels}), aft::as_view(k.data(), {T, channels}),
            aft::as_view(v.data(), {T, channels}), aft::generated_bias{heads, alibi},
            aft::as_view(y.data(), {queries, channels}), aft::options{.causal = true, .first_query = first});
  return y;
}

}  // namespace

int main() {
  // The same numbers stored: 4 x 300 x 300 of them.
  const index_t T = 300;
  std::vector<float> w(static_cast<std::size_t>(heads * T * T));
  for (index_t h = 0; h < heads; ++h)
    for (index_t t = 0; t < T; ++t)
      alibi(0, h, t, 0, std::span<float>(w).subspan(static_cast<std::size_t>((h * T + t) * T), T));
  const auto q = wave(T * channels, 0.1F), k = wave(T * channels, 0.7F), v = wave(T * channels, 0.3F);
  std::vector<float> y(q.size());
  aft::full(aft::as_view(q.data(), {T, channels}), aft::as_view(k.data(), {T, channels}),
            aft::as_view(v.data(), {T, channels}), aft::dense_bias{aft::as_view(w.data(), {heads, T, T})},
            aft::as_view(y.data(), {T, channels}), aft::options{.causal = true});
  const bool same = y == average(T, T);
  std::printf("300 positions: %s a stored bias\n", same ? "the bits of" : "other bits than");

  // t is a position: the last rows of a long sequence alone, whose stored bias would take 160 MB.
  const std::vector<float> last = average(20000, 500);
  bool finite = true;
  for (const float x : last) finite = finite && std::isfinite(x);
  std::printf("the last 500 of 20000 positions: %s\n", finite ? "done" : "not finite");
  return same && finite ? 0 : 1;
}
