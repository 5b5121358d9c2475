// SPDX-License-Identifier: Apache-2.0
//
// Routing problems as ICAM (Zhou et al., arXiv 2405.01906) weighs them: the bias is -alpha log2(n) times the distance
// of two places, other places in each problem of the batch, and a mask hides what a route has been to. Distances in
// metres make weights far below the smallest float; sums here need neither an epsilon nor a clamp.

#include <aft/aft.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace {

using aft::index_t;

struct point {
  float x, y;
};

}  // namespace

int main() {
  constexpr index_t problems = 4, places = 500, routes = 50, d = 16;
  std::mt19937 engine(5);
  std::uniform_real_distribution<float> metres(0, 1000), any(-1, 1);
  std::vector<point> map(problems * places);
  for (point& p : map) p = {metres(engine), metres(engine)};
  std::vector<float> q(problems * routes * d), k(problems * places * d), v(k.size()), y(q.size());
  for (float& x : q) x = any(engine);
  for (float& x : k) x = any(engine);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = i % d == 0 ? 1.0F : any(engine);

  // Route t stands at place t. It may go to one place in ten, never to where it is.
  std::vector<std::uint8_t> open(routes * places);
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = i / places != i % places && (i / places + i) % 10 == 0;

  const float scale = -0.5F * std::log2(static_cast<float>(places));
  const auto weight = [&](index_t b, index_t t, index_t s) noexcept {
    const point &here = map[static_cast<std::size_t>(b * places + t)],
                &there = map[static_cast<std::size_t>(b * places + s)];
    return scale * std::hypot(here.x - there.x, here.y - there.y);
  };
  const aft::generated_bias bias{1,
                                 [&](index_t b, index_t, index_t t, index_t s0, std::span<float> row) noexcept {
                                   for (std::size_t i = 0; i < row.size(); ++i)
                                     row[i] = weight(b, t, s0 + static_cast<index_t>(i));
                                 },
                                 aft::per_batch};
  aft::full(
      aft::as_view(q.data(), {problems, routes, d}), aft::as_view(k.data(), {problems, places, d}),
      aft::as_view(v.data(), {problems, places, d}), bias, aft::as_view(y.data(), {problems, routes, d}),
      aft::options{.gate_fn = aft::gate::identity, .mask = aft::as_view(std::as_const(open).data(), {routes, places})});

  // A channel of ones is an average of ones, whatever the weights; formed one by one they are 0 in many rows.
  index_t lost = 0, wrong = 0;
  for (index_t b = 0; b < problems; ++b)
    for (index_t t = 0; t < routes; ++t) {
      float sum = 0;
      for (index_t s = 0; s < places; ++s)
        if (open[static_cast<std::size_t>(t * places + s)] != 0) sum += std::exp(weight(b, t, s));
      const auto at = static_cast<std::size_t>((b * routes + t) * d);
      if (!(sum > 0)) ++lost;
      if (!(std::abs(y[at] - q[at]) <= 1e-6F)) ++wrong;
    }
  std::printf("of %d routes, %s are lost by exponentials as they are, %d here\n", static_cast<int>(problems * routes),
              lost > 0 ? "some" : "none", static_cast<int>(wrong));
  return lost > 0 && wrong == 0 ? 0 : 1;
}
