// SPDX-License-Identifier: Apache-2.0
/// @file launch/bf16_gemm_keys.cuh  The launches that give dk and dv of bfloat16 data as a bfloat16 product.
#pragma once

#include "../bf16_gemm/pack_query_lines.cuh"
#include "bf16_gemm.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Calls that one product for each pair serves (docs/adr/0012-bfloat16-products-cuda.md).
inline bool is_key_gemm(const backward_problem& p) {
  const auto narrow = [](const field& f) { return !f.set || f.type == dtype::bf16; };
  return p.narrow_products && p.v.type == dtype::bf16 && narrow(p.k) && narrow(p.dk) && narrow(p.dv) &&
         p.Tq <= tuning::gemm_keys && (product_forced() || p.Tq >= tuning::product_keys) &&
         is_product(static_cast<const problem&>(p));
}

/// g is scratch: (B, Tq, d), of float.
inline bool packs_query_lines(const device_call<float>& call, const columns& cols) {
  return call.from_lse && call.hk == call.d && in_whole_lines(cols, line_channels) &&
         in_lines(call.average, dtype::f32) && in_lines(call.lse, dtype::f32);
}

/// Packs the right side, and what the columns' units are. `call` has g, and average and state or lse.
/// C: float.
template <class C>
void pack_gemm_queries(const call_stream& stream, const device_call<C>& call, const gemm_plan& plan) {
  const auto columns = by_saved_access<C>({&call.average, &call.lse},
                                          [](auto access) { return &query_columns_kernel<C, decltype(access)>; });
  stream.launch(columns, plan.right_columns() / tuning::lanes, query_column_warps * warp_size, call, plan);
  const bool lines = packs_query_lines(call, plan.rows.cols);
  stream.launch(lines ? gemm_query_lines_kernel<C> : gemm_queries_kernel<C>, plan.right_blocks(), gemm_keys_threads,
                call, plan);
}

/// dk and dv of parts of the keys. Scratch like that of gemm_forward. Of doubles it is never chosen.
template <class C>
class gemm_keys {
 public:
  gemm_keys(const backward_problem& p, device_scratch& memory) {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (is_key_gemm(p)) choose(p, memory);
    }
  }
  gemm_keys(const gemm_keys&) = delete;
  gemm_keys& operator=(const gemm_keys&) = delete;

  bool chosen() const { return chosen_; }
  void pack(const device_call<C>& call, const call_stream& stream) const { pack_gemm_queries(stream, call, plan_); }
  /// Flags what fold_keys has to sum again.
  void sum(const device_call<C>& part, const fold_plan& rows, const uniform_sums<query_sum<C>>& uniform,
           const call_stream& stream) const {
    for (index_t first = rows.r0; first < rows.r1; first += plan_.row_tiles * gemm_rows)
      multiply_gemm<key_rows>(stream, part, plan_rows(plan_, rows, first), uniform, engine_);
  }

 private:
  void choose(const backward_problem& p, device_scratch& memory) {
    chosen_ = true;
    engine_ = gemm_engine_of_device<key_rows>();
    plan_ = plan_gemm(columns_of(p), p.Tk, p.Tq, tiles_near(p), tuning::gemm_key_bytes);
    memory.reserve(plan_.left, plan_.rows.cols.batch_items() * plan_.row_tiles * plan_.left_tiles);
    memory.reserve(plan_.row_units, plan_.left_rows());
    memory.reserve(plan_.right, plan_.right_count());
    memory.reserve(plan_.query_columns, plan_.right_columns());
  }
  /// The most tiles of queries that a tile of keys looks at.
  static index_t tiles_near(const backward_problem& p) {
    if (!sums_uniform(p, gemm_rows, p.Tq)) return p.Tq;
    return (keys_near(p) + gemm_rows + 2 * tuning::depth) / gemm_depth + 2;
  }

  bool chosen_ = false;
  gemm_engine engine_ = gemm_engine::warps;
  gemm_plan plan_{};
};

}  // namespace aft::inline AFT_ISA::cuda_impl
