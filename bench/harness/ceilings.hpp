// SPDX-License-Identifier: Apache-2.0
/// @file ceilings.hpp  What the machine can do: matrix products of oneDNN, and streams that only move bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <aft/aft.hpp>

namespace aft_bench {

using aft::index_t;

/// C (m x n) = op(A) op(B) of depth k, all row-major; op is the transpose for 'T'.
struct product {
  char a = 'N', b = 'N';
  index_t m = 0, n = 0, k = 0;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

/// oneDNN's sgemm, on operands of its own.
std::function<void()> sgemm(const product& p, int threads);

/// oneDNN's matmul of plain row-major bfloat16 matrices into bfloat16; empty where it has none, as below AVX-512.
std::function<void()> bf16_matmul(const product& p, int threads);

/// Reads `reads` arrays of `bytes` bytes once and writes `writes` arrays of that size. `around_caches`: with stores
/// that do not load the line first, which is faster whenever the arrays do not fit the caches.
std::function<void()> stream(int reads, int writes, std::size_t bytes, int threads, bool around_caches);

/// The same with `updates` arrays beside them, each of which is read and then written where it lies.
std::function<void()> stream(int reads, int updates, int writes, std::size_t bytes, int threads, bool around_caches);

/// Reads `bytes` bytes once, in parts side by side, one a thread.
std::function<void()> reading_stream(std::size_t bytes, int threads);

/// Version of oneDNN.
std::string library_version();

}  // namespace aft_bench
