// SPDX-License-Identifier: Apache-2.0
/// @file forward.cuh  The launches of a forward call.
#pragma once

#include <optional>

#include "expand.cuh"
#include "outer_scan.cuh"
#include "tensor.cuh"

namespace aft {
inline namespace AFT_ISA {
namespace cuda_impl {

inline grid to_grid(const std::array<index_t, 3>& a) {
  return {a[0], a[1], a[2]};
}

inline bias_source to_bias(const problem& p) {
  bias_source s;
  s.kind = p.bias.kind;
  s.heads = p.bias.heads;
  s.batched = p.bias.batch > 1;
  s.w = p.bias.w;
  s.u = p.bias.u;
  s.v = p.bias.v;
  s.rank = p.bias.rank;
  s.r = p.bias.r;
  s.r_type = p.bias.r_type;
  s.r_sh = p.bias.r_sh;
  s.r_s0 = p.bias.r_sj[0];
  s.r_s1 = p.bias.r_sj[1];
  s.r_s2 = p.bias.r_sj[2];
  s.taps = to_grid(p.taps);
  s.left = to_grid(p.left);
  s.bounded = p.win.bounded;
  s.before = p.win.before;
  s.after = p.win.after;
  return s;
}

template <class C>
device_call<C> to_call(const problem& p) {
  device_call<C> c;
  c.B = p.B;
  c.Tq = p.Tq;
  c.Tk = p.Tk;
  c.d = p.d;
  c.hk = p.hk;
  c.positions = to_grid(p.grid);
  c.q = to_tensor(p.q);
  c.k = to_tensor(p.k);
  c.v = to_tensor(p.v);
  c.y = to_tensor(p.y);
  c.lse = to_tensor(p.lse);
  c.average = to_tensor(p.average);
  c.bias = to_bias(p);
  c.causal = p.causal;
  c.excluded = p.excluded;
  const reach r = reach_of(p);
  c.reach_before = r.before;
  c.reach_after = r.after;
  c.gate_fn = p.gate_fn;
  c.mask = p.mask;
  c.mask_sb = p.mask_sb;
  c.mask_st = p.mask_st;
  c.mask_ss = p.mask_ss;
  c.lengths = p.lengths;
  c.lengths_sb = p.lengths_sb;
  c.state_channels = p.hk % p.bias.heads == 0 ? p.hk : p.d;
  return c;
}

/// All rows of a problem, in parts whose share of a factorized bias fits the scratch.
template <class C>
class row_parts {
 public:
  row_parts(const problem& p, device_scratch& memory)
      : cols_(columns_of(p)), step_(p.Tq), width_(expanded_width(p)), banded_(expands_band(p)) {
    if (p.bias.kind == bias_kind::factorized) {
      step_ = rows_at_once<C>(p.bias.heads, width_, p.Tq, fold_rows);
      if (step_ > 0) memory.reserve(weights_, p.bias.heads * step_ * width_);
      expands_ = step_ > 0;
      if (!expands_) step_ = p.Tq;
    }
    memory.reserve(flags_, plan_fold(cols_, 0, step_).flag_words());
  }
  // The scratch remembers where its pointers go.
  row_parts(const row_parts&) = delete;
  row_parts& operator=(const row_parts&) = delete;

  /// Sums each part with sum(call, plan), and what that has flagged by definition.
  template <class F>
  void run(const device_call<C>& call, const call_stream& stream, const F& sum) const {
    for (index_t r0 = 0; r0 < call.Tq; r0 += step_) {
      device_call<C> part = call;
      fold_plan plan = plan_fold(cols_, r0, r0 + step_ < call.Tq ? r0 + step_ : call.Tq);
      plan.flags = flags_;
      if (expands_) {
        const expand_plan<C> expansion = banded_ ? plan_band(call.bias, plan.r0, plan.r1, call.Tk, width_, weights_)
                                                 : plan_expansion(call.bias, plan.r0, plan.r1, 0, call.Tk, weights_);
        stream.launch(expand_kernel<C>, expansion.blocks(), expand_threads, expansion);
        part.bias = expanded(call.bias, expansion);
      }
      sum(part, plan);
      constexpr int words_a_block = exact_threads / warp_size;
      stream.launch(exact_kernel<C>, (plan.flag_words() + words_a_block - 1) / words_a_block, exact_threads, part, plan,
                    plan.flag_words());
    }
  }

 private:
  columns cols_;
  index_t step_ = 0, width_ = 0;
  bool banded_ = false, expands_ = false;
  C* weights_ = nullptr;
  std::uint32_t* flags_ = nullptr;
};

/// Folds the rows of any problem pair by pair: O(B Tq s d) for s keys in a window, of a block's rows rather than of
/// one.
template <class C>
class pair_forward {
 public:
  pair_forward(const problem& p, device_scratch& memory)
      : call(to_call<C>(p)), rows_(p, memory), outer_(p, p.Tk, folds_outside(p, fold_rows), true, !p.causal, memory) {}

  void run(const call_stream& stream) const {
    outer_.run(scan_chunks_kernel<C>, call, stream);
    rows_.run(call, stream, [&](const device_call<C>& part, const fold_plan& plan) {
      stream.launch(fold_kernel<C>, plan.blocks(), fold_threads, part, plan, outer_.folds());
    });
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  row_parts<C> rows_;
  outer_scan<running_fold<C>> outer_;
};

/// Calls that the matrix product serves. Nothing here may depend on the batch, or on what it holds.
inline bool is_product(const problem& p) {
  // Rows that see a part of a tile go pair by pair there too, which a mask for each pair would make of all of them.
  if (has_pair_mask(p) || p.excluded) return false;
  if (p.bias.kind == bias_kind::factorized &&
      rows_at_once<float>(p.bias.heads, expanded_width(p), p.Tq, fold_rows) == 0)
    return false;
  return product_forced() || (p.d / p.bias.heads >= tuning::tensor_channels && p.Tk >= tuning::tensor_keys);
}

/// The rows of a float problem as a matrix product on the tensor cores: the work of pair_forward, O(B Tk d) of scratch.
class product_forward {
 public:
  product_forward(const problem& p, device_scratch& memory)
      : call(to_call<float>(p)),
        // The range of half is that of weights from half numbers, more or less: what is beyond is found and folded.
        halves_(p.k.type != dtype::f32),
        rows_(p, memory),
        outer_(p, p.Tk, folds_outside(p, tensor_rows), true, !p.causal, memory),
        keys_(plan_pack(columns_of(p), p.Tk)) {
    memory.reserve(keys_.tiles, keys_.count());
  }
  product_forward(const product_forward&) = delete;
  product_forward& operator=(const product_forward&) = delete;

  void run(const call_stream& stream) const {
    if (halves_) return run_with<half_operand>(stream);
    run_with<tf32_operand>(stream);
  }

  device_call<float> call;  ///< may be changed until run()

 private:
  template <class Operand>
  void run_with(const call_stream& stream) const {
    stream.launch(pack_kernel<Operand>, (keys_.count() + pack_warps - 1) / pack_warps, pack_threads, call, keys_,
                  keys_.count());
    outer_.run(scan_chunks_kernel<float>, call, stream);
    rows_.run(call, stream, [&](const device_call<float>& part, const fold_plan& plan) {
      const tensor_plan product = plan_product(plan, keys_);
      stream.launch(tensor_kernel<Operand>, product.blocks(), tensor_threads, part, product, outer_.folds());
      fold_plan again = plan;
      again.again = true;
      stream.launch(fold_kernel<float>, again.blocks(), fold_threads, part, again, outer_.folds());
    });
  }

  bool halves_;
  row_parts<float> rows_;
  outer_scan<running_fold<float>> outer_;
  pack_plan keys_;
};

/// No pair has a weight of its own: AFT-simple, or AFT-local with an empty window.
inline bool is_scan(const problem& p) {
  if (has_pair_mask(p) || p.bias.kind == bias_kind::filter) return false;
  if (!p.win.bounded) return p.bias.kind == bias_kind::none;
  return p.win.before + p.win.after + 1 <= 0 && !p.excluded;
}

/// Folds the keys once. O(B T d).
template <class C>
class scan_forward {
 public:
  scan_forward(const problem& p, device_scratch& memory)
      : call(to_call<C>(p)), scan_(plan_scan<running_fold<C>>(p.B, p.d, p.causal ? p.Tq : p.Tk)) {
    memory.reserve(scan_.partials, scan_.chunks * scan_.cols.count());
    if (p.causal) {
      rows_ = plan_fold(scan_.cols, 0, p.Tq);
      memory.reserve(rows_.flags, rows_.flag_words());
    } else {
      memory.reserve(totals_, scan_.cols.count());
    }
  }
  scan_forward(const scan_forward&) = delete;
  scan_forward& operator=(const scan_forward&) = delete;

  void run(const call_stream& stream) const {
    stream.launch(scan_chunks_kernel<C>, scan_.blocks(), scan_threads, call, scan_);
    if (call.causal) {
      // The last words of the last tile belong to no row.
      stream.clear(rows_.flags, rows_.flag_words());
      const run_plan runs = plan_runs(scan_.cols.count(), scan_.chunks, run_warps<running_fold<C>>);
      stream.launch(scan_prefix_kernel<C>, runs.blocks(), runs.threads(), runs, scan_.partials);
      stream.launch(scan_rows_kernel<C>, scan_.blocks(), scan_threads, call, scan_, rows_);
      constexpr int words_a_block = exact_threads / warp_size;
      stream.launch(exact_kernel<C>, (rows_.flag_words() + words_a_block - 1) / words_a_block, exact_threads, call,
                    rows_, rows_.flag_words());
    } else {
      const run_plan runs = plan_runs(scan_.cols.count(), scan_.chunks, tuning::wide_run_warps);
      stream.launch(scan_total_kernel<C>, runs.blocks(), runs.threads(), call, runs, scan_, totals_);
      stream.launch_each(scan_spread_kernel<C>, call.B * call.Tq * call.d, scan_threads, call, totals_);
    }
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  scan_plan<running_fold<C>> scan_;
  fold_plan rows_{};
  row_result<C>* totals_ = nullptr;
};

/// A forward call by the algorithm that suits it. A faster engine for some problems is one more member here, as one
/// with wgmma for sm_90a would be.
template <class C>
class any_forward {
 public:
  any_forward(const problem& p, device_scratch& memory) {
    if (is_scan(p)) {
      scan_.emplace(p, memory);
    } else if (sizeof(C) == sizeof(float) && is_product(p)) {
      product_.emplace(p, memory);
    } else {
      pairs_.emplace(p, memory);
    }
  }

  device_call<C>& call() {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (product_) return product_->call;
    }
    return scan_ ? scan_->call : pairs_->call;
  }
  void run(const call_stream& stream) const {
    if (scan_) return scan_->run(stream);
    if (product_) return product_->run(stream);
    pairs_->run(stream);
  }

 private:
  std::optional<scan_forward<C>> scan_;
  std::optional<product_forward> product_;
  std::optional<pair_forward<C>> pairs_;
};

template <class C>
void forward(const problem& p, const call_stream& stream) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  device_scratch memory(stream);
  any_forward<C> job(p, memory);
  memory.allocate();
  job.run(stream);
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
