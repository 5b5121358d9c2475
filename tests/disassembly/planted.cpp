// SPDX-License-Identifier: Apache-2.0
// Kernels that check_loops.py has to report: sums that a call takes by reference, that are indexed at run time, and
// that lie in memory of which the compiler does not know that it is a tile's own.
#include <aft/cpu/simd/vec.hpp>

namespace planted {
using aft::index_t;
using namespace aft::cpu_impl;
constexpr index_t rows = 4;

[[gnu::noinline]] void add(const float* a, const vec<float>& p, vec<float> (&sums)[rows]) {
  for (index_t r = 0; r < rows; ++r) sums[r] = mul_add(vec<float>(a[r]), p, sums[r]);
}
void called(index_t depth, const float* a, const float* p, float* out) {
  vec<float> sums[rows] = {vec<float>(0.0f), vec<float>(0.0f), vec<float>(0.0f), vec<float>(0.0f)};
  for (index_t s = 0; s < depth; ++s) add(a + s * rows, load(p + s * lanes<float>), sums);
  for (index_t r = 0; r < rows; ++r) store(out + r * lanes<float>, sums[r]);
}

void indexed(index_t depth, const index_t* row, const float* a, const float* p, float* out) {
  vec<float> sums[rows] = {vec<float>(0.0f), vec<float>(0.0f), vec<float>(0.0f), vec<float>(0.0f)};
  for (index_t s = 0; s < depth; ++s) {
    const vec<float> x = load(p + s * lanes<float>);
    sums[row[s]] = mul_add(vec<float>(a[s]), x, sums[row[s]]);
    sums[row[s] ^ 1] = mul_add(vec<float>(a[s + 1]), x, sums[row[s] ^ 1]);
  }
  for (index_t r = 0; r < rows; ++r) store(out + r * lanes<float>, sums[r]);
}

void stored(index_t depth, const float* a, const float* p, float* sums) {
  for (index_t s = 0; s < depth; ++s) {
    const vec<float> x = load(p + s * lanes<float>);
    for (index_t r = 0; r < rows; ++r)
      store(sums + r * lanes<float>, mul_add(vec<float>(a[s * rows + r]), x, load(sums + r * lanes<float>)));
  }
}
}  // namespace planted
