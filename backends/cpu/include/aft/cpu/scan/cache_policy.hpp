// SPDX-License-Identifier: Apache-2.0
/// @file scan/cache_policy.hpp  What the size of a call's arrays decides: how they are read, and how results are
/// written.
#pragma once

#include "../runtime/streaming.hpp"
#include "plan.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// The ways of a call's arrays. They are counted in bytes as they are stored, 16-bit numbers as half of what they
/// become.
struct cache_policy {
  bool uncached_keys = false;       ///< keys and values come from memory, not from a cache, where they are summed
  bool uncached_key_grads = false;  ///< the same where their gradients are formed
  bool uncached_rows = false;       ///< the same of q, and of dy
  bool streamed = false;            ///< y or dq is written by streaming stores where it lies on_lines
  bool keys_streamed = false;       ///< the same of dk and dv
  bool prefetched = false;          ///< lines of y are asked for that are written through the caches

  template <class C>
  static cache_policy of_forward(const problem& p, const scan_plan<C>& plan) {
    const index_t keys = bytes(p, p.key_rows()), rows = bytes(p, p.query_rows());
    cache_policy policy;
    policy.uncached_keys = keys >= streaming_from::output_bytes;
    policy.uncached_rows = rows >= streaming_from::output_bytes;
    policy.streamed =
        plan.splits_rows() || policy.uncached_rows || (p.causal && forward_arrays * rows >= streaming_from::call_bytes);
    policy.prefetched = rows >= scan_tuning<C>::prefetched;
    return policy;
  }

  template <class C>
  static cache_policy of_backward(const problem& p, const scan_plan<C>& plan) {
    const index_t keys = bytes(p, p.key_rows()), rows = bytes(p, p.query_rows());
    cache_policy policy;
    policy.uncached_keys = keys >= streaming_from::output_bytes;
    policy.uncached_key_grads = backward_arrays * keys >= streaming_from::call_bytes;
    policy.uncached_rows = backward_arrays * rows >= streaming_from::call_bytes;
    policy.streamed = plan.splits_rows() || policy.uncached_rows;
    policy.keys_streamed = plan.splits_rows() || policy.uncached_key_grads;
    return policy;
  }

 private:
  static constexpr index_t forward_arrays = 4;   ///< q, k, v, y
  static constexpr index_t backward_arrays = 7;  ///< q, k, v, dy, dq, dk, dv
  static index_t bytes(const problem& p, index_t rows) { return rows * p.d * size_of(p.v.type); }
};

/// Rows that go through a kernel together.
template <class C>
inline index_t panel_rows(bool uncached) {
  return uncached ? scan_tuning<C>::uncached_rows : scan_tuning<C>::rows;
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
