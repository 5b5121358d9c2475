// SPDX-License-Identifier: Apache-2.0
/// @file launch/bf16_gemm.cuh  The launches of a forward call on bfloat16 data as a bfloat16 product.
#pragma once

#include "../bf16_gemm/pack_key_lines.cuh"
#include "../bf16_gemm/pack_weights.cuh"
#include "../bf16_gemm/wgmma.cuh"
#include "../plan/row_parts.cuh"
#include "../plan/to_call.cuh"
#include "access.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Calls that the matrix product serves. Nothing here may depend on the batch, or on what it holds.
inline bool is_product(const problem& p) {
  // Rows that see a part of a tile go pair by pair there too, which a mask for each pair would make of all of them.
  if (has_pair_mask(p) || p.excluded) return false;
  if (p.bias.kind == bias_kind::factorized &&
      rows_at_once<float>(p.bias.heads, expanded_width(p), p.Tq, fold_rows) == 0)
    return false;
  return product_forced() || (p.d / p.bias.heads >= tuning::product_channels && p.Tk >= tuning::product_keys);
}

/// Calls that one product for each pair serves: data are bfloat16 (docs/adr/0012-bfloat16-products-cuda.md), and the
/// caller leaves the arithmetic to the library. A lse, or an average in float, then is as exact as bfloat16 data allow.
inline bool is_gemm(const problem& p) {
  const auto narrow = [](const field& f) { return !f.set || f.type == dtype::bf16; };
  return p.narrow_products && p.v.type == dtype::bf16 && narrow(p.q) && narrow(p.k) && narrow(p.y) &&
         p.Tk <= tuning::gemm_keys && is_product(p);
}

inline bool packs_key_lines(const device_call<float>& call, const columns& cols) {
  return call.hk == call.d && call.mask == nullptr && in_whole_lines(cols, line_channels) &&
         in_lines(call.k, dtype::bf16) && in_lines(call.v, dtype::bf16);
}

/// Packs the right side, and what the columns' units are. C: float.
template <class C>
void pack_gemm_keys(const call_stream& stream, const device_call<C>& call, const gemm_plan& plan) {
  stream.launch_each(gemm_columns_kernel<C>, plan.right_columns(), gemm_column_threads, call, plan);
  const bool lines = packs_key_lines(call, plan.rows.cols);
  stream.launch(lines ? gemm_key_lines_kernel<C> : gemm_keys_kernel<C>, plan.right_blocks(), gemm_keys_threads, call,
                plan);
}

/// The kernels that multiply; results of both are within the same bounds.
enum class gemm_engine { warps, warpgroups };

template <class Side>
gemm_engine gemm_engine_of_device() {
  return runs_with(gemm_wgmma_kernel<Side>, wgmma_threads) ? gemm_engine::warpgroups : gemm_engine::warps;
}

/// Multiplies what has been packed.
template <class Side>
void launch_gemm(const call_stream& stream, const device_call<float>& call, const gemm_plan& plan,
                 const uniform_sums<typename Side::fold>& uniform, gemm_engine engine) {
  // Asked of the kernel that is launched, too: files for sm_90 and for sm_90a have the same names (core/config.hpp), so
  // that the linker may keep the choice of one and this kernel of the other.
  if (engine == gemm_engine::warpgroups && runs_with(gemm_wgmma_kernel<Side>, wgmma_threads)) {
    gemm_plan shared = plan;
    const index_t most = multiprocessors();
    shared.launched = min_of(plan.blocks(), most);
    stream.launch_with(dynamic_bytes<wgmma_buffers>, gemm_wgmma_kernel<Side>, shared.launched, wgmma_threads, call,
                       shared, uniform);
  } else {
    stream.launch_with(dynamic_bytes<gemm_buffers>, gemm_mma_kernel<Side>, plan.blocks(), gemm_threads, call, plan,
                       uniform);
  }
}

/// Whether a lane of the epilogue can take eight channels of a row.
template <class Side>
bool writes_lines(const device_call<float>& call, const columns& cols) {
  if (call.hk != call.d || !in_whole_lines(cols, wide_channels)) return false;
  if (Side::are_keys)
    return call.mask == nullptr && in_lines(call.k, dtype::bf16) && in_lines(call.v, dtype::bf16) &&
           in_lines(call.dk, dtype::bf16) && in_lines(call.dv, dtype::bf16);
  const auto in_either = [](const tensor& x) { return in_lines(x, dtype::bf16) || in_lines(x, dtype::f32); };
  return in_lines(call.q, dtype::bf16) && in_lines(call.y, dtype::bf16) && in_either(call.lse) &&
         in_either(call.average);
}

/// Packs the left side of a part of the rows, and multiplies.
template <class Side>
void multiply_gemm(const call_stream& stream, const device_call<float>& call, const gemm_plan& plan,
                   const uniform_sums<typename Side::fold>& uniform, gemm_engine engine) {
  const index_t blocks = ceil_div(plan.left_rows(), gemm_weights_warps);
  stream.launch(gemm_weights_kernel<Side>, blocks, gemm_weights_threads, call, plan, uniform);
  if (writes_lines<Side>(call, plan.rows.cols))
    return launch_gemm<typename Side::lines>(stream, call, plan, uniform, engine);
  launch_gemm<Side>(stream, call, plan, uniform, engine);
}

/// The rows of a bfloat16 problem as a product whose operands are packed first. O(B T d) of scratch, and gemm_bytes for
/// the left side, or as much as one tile of rows takes. C: float. A template, as all is that launches kernels: nvcc
/// makes those that a function names, called or not, in every file that includes it.
template <class C>
class gemm_forward {
 public:
  gemm_forward(const problem& p, device_scratch& memory, gemm_engine engine = gemm_engine_of_device<query_rows>())
      : call(to_call<C>(p)),
        engine_(engine),
        rows_(p, memory),
        uniform_(p, p.Tk, sums_uniform(p, gemm_rows, p.Tk), true, !p.causal, memory),
        plan_(plan_gemm(columns_of(p), p.Tq, p.Tk, tiles_near(p))) {
    memory.reserve(plan_.left, plan_.rows.cols.batch_items() * plan_.row_tiles * plan_.left_tiles);
    memory.reserve(plan_.row_units, plan_.left_rows());
    memory.reserve(plan_.right, plan_.right_count());
    memory.reserve(plan_.columns, plan_.right_columns());
  }
  gemm_forward(const gemm_forward&) = delete;
  gemm_forward& operator=(const gemm_forward&) = delete;

  void run(const call_stream& stream) const {
    pack_gemm_keys(stream, call, plan_);
    uniform_.run(scan_chunks_of(call), call, stream);
    rows_.run(call, stream, [&](const device_call<C>& part, const fold_plan& rows) {
      for (index_t first = rows.r0; first < rows.r1; first += plan_.row_tiles * gemm_rows)
        multiply_gemm<query_rows>(stream, part, plan_rows(plan_, rows, first), uniform_.folds(), engine_);
      const fold_plan flagged = only_flagged(rows);
      stream.launch(fold_kernel<C>, flagged.launched, fold_threads, part, flagged, uniform_.folds());
    });
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  /// The most tiles of keys that a tile of rows looks at.
  static index_t tiles_near(const problem& p) {
    if (!sums_uniform(p, gemm_rows, p.Tk)) return p.Tk;
    // What is looked at begins and ends with whole tiles of the folds, anywhere in those of the product.
    return (keys_near(p) + gemm_rows + 2 * tuning::depth) / gemm_depth + 2;
  }

  gemm_engine engine_;
  row_parts<C> rows_;
  uniform_scan<key_sum<C>> uniform_;
  gemm_plan plan_;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
