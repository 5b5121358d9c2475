// SPDX-License-Identifier: Apache-2.0
// The scan of AFT-simple: which thread has which positions and channels, and rows whose sums come about in two ways.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "engines/engine.hpp"

namespace {

using aft::index_t;
using aft::cpu_impl::scan_tuning;
using aft::cpu_impl::streaming_from;
using aft::cpu_impl::scan::cache_policy;
using plan_type = aft::cpu_impl::scan::scan_plan<float>;

plan_type plan_of(index_t B, index_t T, index_t d, int threads, bool causal) {
  aft::problem p;
  p.B = B;
  p.Tq = p.Tk = T;
  p.d = p.hk = d;
  p.causal = causal;
  return {p, threads};
}

}  // namespace

TEST_CASE("scan_plan: every chunk of every column block once, and every column in one column block") {
  for (const bool causal : {false, true})
    for (const int threads : {1, 2, 3, 8})
      for (const index_t B : {1, 2, 3, 5})
        for (const index_t d : {3, 40, 512, 1100, 2100})
          for (const index_t T : {1, 128, 197, 512, 1025}) {
            const plan_type plan = plan_of(B, T, d, threads, causal);
            const index_t chunks = plan_type::chunks(T);
            std::map<std::pair<index_t, index_t>, int> times;
            for (index_t n = 0; n < plan.count() * chunks; ++n) {
              const auto [i, c] = plan.part_of(n, chunks);
              ++times[{i, c}];
            }
            CHECK(static_cast<index_t>(times.size()) == plan.count() * chunks);
            std::vector<int> columns(static_cast<std::size_t>(B * d));
            for (index_t i = 0; i < plan.count(); ++i) {
              const auto x = plan.at(i);
              for (index_t n = x.first; n < x.first + x.count; ++n) ++columns[static_cast<std::size_t>(n)];
            }
            CHECK(columns == std::vector<int>(columns.size(), 1));
          }
}

TEST_CASE("cache_policy: arrays count as they are stored, and together where a call writes much or late") {
  constexpr index_t d = 512;
  // Positions of one array that takes so many bytes of float.
  const auto positions = [](index_t bytes) { return bytes / (d * static_cast<index_t>(sizeof(float))); };
  aft::backward_problem p;
  p.B = 2;
  p.d = p.hk = d;
  const auto policy = [&](index_t bytes, aft::dtype type, bool causal, bool backward) {
    p.v.type = type;
    p.causal = causal;
    p.Tq = p.Tk = positions(bytes / p.B);
    const plan_type plan(p, 2);
    CHECK_FALSE(plan.splits_rows());
    return backward ? cache_policy::of_backward(p, plan) : cache_policy::of_forward(p, plan);
  };
  const index_t forward = streaming_from::call_bytes / 4, backward = streaming_from::call_bytes / 7;
  for (const index_t bytes : {streaming_from::output_bytes - 4096, streaming_from::output_bytes}) {
    const cache_policy w = policy(bytes, aft::dtype::f32, false, false);
    CHECK(w.streamed == (bytes == streaming_from::output_bytes));
    CHECK(w.uncached_keys == w.streamed);
    CHECK(w.uncached_rows == w.streamed);
  }
  CHECK_FALSE(policy(forward, aft::dtype::f32, false, false).streamed);
  CHECK(policy(forward, aft::dtype::f32, true, false).streamed);
  CHECK_FALSE(policy(forward, aft::dtype::bf16, true, false).streamed);
  CHECK_FALSE(policy(backward - 8192, aft::dtype::f32, false, true).streamed);
  const cache_policy late = policy(backward + 8192, aft::dtype::f32, false, true);
  CHECK((late.streamed && late.keys_streamed && late.uncached_rows && late.uncached_key_grads && !late.uncached_keys));
  CHECK_FALSE(policy(backward + 8192, aft::dtype::bf16, false, true).streamed);
}

TEST_CASE("scan_plan: threads divide a batch element by positions, unless it is causal or too short") {
  const index_t chunk = scan_tuning<float>::chunk, d = 2 * scan_tuning<float>::column_block;
  for (const index_t B : {1, 3}) {
    const plan_type by_chunk = plan_of(B, 4 * chunk, scan_tuning<float>::column_block, 2, false);
    CHECK(by_chunk.count() == B);
    CHECK_FALSE(by_chunk.whole(2, false));
    CHECK_FALSE(by_chunk.splits_rows());
  }
  // Two pieces to a row: the items of a thread are whole rows all the same.
  const plan_type wide = plan_of(1, 4 * chunk, d, 2, false);
  CHECK(wide.count() == 2);
  CHECK_FALSE(wide.whole(2, false));
  CHECK_FALSE(wide.splits_rows());
  for (index_t n = 0; n < 8; ++n) CHECK(wide.part_of(n, 4).chunk == n / 2);

  for (const auto& [T, causal] : {std::pair{4 * chunk, true}, {chunk, false}, {chunk + 1, false}}) {
    const plan_type cut = plan_of(1, T, scan_tuning<float>::column_block, 2, causal);
    CHECK(cut.count() == 2);
    CHECK(cut.whole(2, causal));
    CHECK(cut.splits_rows());
  }
  // A batch element to a thread, or all of them to one.
  CHECK_FALSE(plan_of(2, 4 * chunk, d, 2, true).splits_rows());
  CHECK(plan_of(2, 4 * chunk, d, 2, false).whole(2, false));
  CHECK_FALSE(plan_of(1, 4 * chunk, d, 1, true).splits_rows());
}

TEST_CASE("scan: causal rows past a short sequence's end, with a gate that is nearly shut") {
  // Within the batch such a row passes through a chunk whose own keys are far below those before it; alone it follows
  // from these by themselves. Both must reach gates of 1e-35 and less.
  constexpr index_t B = 2, T = 256, d = 5, one = T * d;
  const std::vector<std::int64_t> lengths{130, T};
  std::vector<float> q(B * one, 0.5F), k(B * one, 0.5F), v(B * one, 1.0F), y(B * one), alone(one);
  std::fill_n(k.begin(), 128 * d, 17.0F);
  for (const float gate : {-40.0F, -60.0F, -80.0F}) {
    CAPTURE(gate);
    std::fill(q.begin() + 200 * d, q.begin() + 201 * d, gate);
    const auto call = [&](index_t batch, std::vector<float>& to) {
      const auto in = [batch](const std::vector<float>& x) {
        return aft::tensor_view<const float, 3>{x.data(), {batch, T, d}};
      };
      const aft::tensor_view<const std::int64_t, 1> ends{lengths.data(), {batch}};
      aft::simple(aft::cpu{}, in(q), in(k), in(v), aft::tensor_view<float, 3>{to.data(), {batch, T, d}},
                  aft::options{.causal = true, .key_lengths = ends});
    };
    call(B, y);
    call(1, alone);
    CHECK(std::equal(alone.begin(), alone.end(), y.begin()));
    const double expected = 1 / (1 + std::exp(-static_cast<double>(gate)));
    for (index_t c = 0; c < d; ++c) {
      const double got = static_cast<double>(y[static_cast<std::size_t>(200 * d + c)]);
      // The quotient and 1 / (1 + e^-q) round a few times each; e^-q is off by up to 3 ulp at such q.
      CHECK(std::abs(got / expected - 1) <= 8 * static_cast<double>(std::numeric_limits<float>::epsilon()));
    }
  }
}
