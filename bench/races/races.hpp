// SPDX-License-Identifier: Apache-2.0
/// @file races.hpp  What is raced: a file per operator registers its races, named operator/shape/type.
#pragma once

#include <string>

#include "../harness/ceilings.hpp"
#include "../harness/operands.hpp"
#include "../harness/race.hpp"

namespace aft_bench {

void add_full();
void add_full_backward();
void add_local();
void add_training();
void add_simple();
void add_conv();
void add_small_calls();
void add_growth();
void add_threads();
void add_packed();
void add_streams();

/// Multiply-adds of a numerator and a denominator, two flops each, for every pair (t, s) and channel.
inline double pair_flops(double pairs, index_t channels) {
  return 4.0 * pairs * static_cast<double>(channels);
}

/// Pairs (t, s) of a sequence with t - before <= s <= t + after: a window's rows are shorter at the ends.
inline index_t window_pairs(index_t T, index_t before, index_t after) {
  index_t pairs = 0;
  for (index_t t = 0; t < T; ++t) pairs += std::min(T - 1, t + after) - std::max(index_t{0}, t - before) + 1;
  return pairs;
}

inline void enter_sgemm(race& r, const product& p, int threads, const std::string& name = "sgemm") {
  r.enter(name, sgemm(p, threads)).note("flops." + name, p.flops());
}

inline void enter_matmul(race& r, const product& p, int threads) {
  if (std::function<void()> work = bf16_matmul(p, threads)) r.enter("matmul", work).note("flops.matmul", p.flops());
}

/// The product that `full` amounts to: weights by numerators and denominators.
inline product full_product(const shape& s) {
  return {.m = s.T, .n = 2 * s.B * s.d, .k = s.T};
}

/// Both kinds of stores: which is the faster, and so the ceiling, depends on whether the arrays fit the caches.
inline void enter_streams(race& r, int reads, int writes, std::size_t bytes, int threads) {
  r.enter("stream", stream(reads, writes, bytes, threads, true));
  r.enter("stream_cached", stream(reads, writes, bytes, threads, false));
  const double moved = static_cast<double>(reads + writes) * static_cast<double>(bytes);
  r.note("bytes.stream", moved).note("bytes.stream_cached", moved);
}

}  // namespace aft_bench
