// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/sides.cuh  What the rows and the depth of the bfloat16 product are: queries and keys, or the other
/// way round.
#pragma once

#include "../fold/query_sum.cuh"
#include "../fold/uniform_keys.cuh"
#include "../tensor/weights.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

struct query_lines;
struct key_lines;

/// The forward pass, AFT Eq. 2.
struct query_rows {
  using lines = query_lines;  ///< the same, where results are lines (tensor/access.cuh)
  using fold = key_sum<float>;
  static constexpr bool are_keys = false;
  static constexpr bool in_lines = false;

  AFT_DEVICE static span near_rows(const device_call<float>& p, const uniform_sums<fold>& uniform, index_t r0,
                                   index_t r1) {
    return window_keys_of(p, uniform, r0, r1);
  }
  /// What of it row r sees.
  AFT_DEVICE static span seen_by(const device_call<float>& p, const span& near_rows, index_t r) {
    const bool ends = p.causal && r + p.diagonal < near_rows.hi;
    return {near_rows.lo, ends ? r + p.diagonal + 1 : near_rows.hi};
  }
  AFT_DEVICE static float weight_at(const device_call<float>& p, index_t b, index_t h, index_t r, index_t x) {
    return weight(p, b, h, r, x);
  }
  /// Of a matrix in memory: elements between a row's, and between those of its depth.
  AFT_DEVICE static index_t row_step(const matrix& w) { return w.sr; }
  AFT_DEVICE static index_t depth_step(const matrix& w) { return w.sc; }
  AFT_DEVICE static index_t row_origin(const device_bias& bias) { return bias.row; }
  AFT_DEVICE static index_t depth_origin(const device_bias& bias) { return bias.column; }
};

struct query_lines : query_rows {
  static constexpr bool in_lines = true;
};

/// The gradients of keys and values, which sum over queries.
struct key_rows {
  using lines = key_lines;
  using fold = query_sum<float>;
  static constexpr bool are_keys = true;
  static constexpr bool in_lines = false;

  AFT_DEVICE static span near_rows(const device_call<float>& p, const uniform_sums<fold>& uniform, index_t r0,
                                   index_t r1) {
    return window_queries_of(p, uniform, r0, r1);
  }
  AFT_DEVICE static span seen_by(const device_call<float>& p, const span& near_rows, index_t r) {
    const index_t lo = p.causal && r - p.diagonal > near_rows.lo ? r - p.diagonal : near_rows.lo;
    return {lo, near_rows.hi};
  }
  AFT_DEVICE static float weight_at(const device_call<float>& p, index_t b, index_t h, index_t r, index_t x) {
    return weight(p, b, h, x, r);
  }
  AFT_DEVICE static index_t row_step(const matrix& w) { return w.sc; }
  AFT_DEVICE static index_t depth_step(const matrix& w) { return w.sr; }
  AFT_DEVICE static index_t row_origin(const device_bias& bias) { return bias.column; }
  AFT_DEVICE static index_t depth_origin(const device_bias& bias) { return bias.row; }
};

struct key_lines : key_rows {
  static constexpr bool in_lines = true;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
