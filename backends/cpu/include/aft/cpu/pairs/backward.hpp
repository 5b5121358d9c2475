// SPDX-License-Identifier: Apache-2.0
/// @file pairs/backward.hpp  Gradients of every operator that weighs pairs: the same fold with time transposed.
#pragma once

#include <algorithm>
#include <optional>

#include "../bias_gradient/store.hpp"
#include "../gemm/exact_key.hpp"
#include "../gemm/pack_queries.hpp"
#include "../math/exp_weight.hpp"
#include "../softmax/proof.hpp"
#include "../tensor/reduce_shared_keys.hpp"
#include "../tensor/visible_keys.hpp"
#include "../window/bias_gradient.hpp"
#include "../window/epilogue.hpp"
#include "../window/loop_nest.hpp"
#include "../window/pack_queries.hpp"
#include "forward.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Finishes a panel of keys: dv = e^k A, dk = e^k (v A - B), or the exact sums. dk goes to `dk`, which has d channels
/// even when keys are shared. Where `kept` is not null, what the gradient of the bias needs of the keys goes there.
template <class C>
[[gnu::flatten]] inline void key_epilogue(const gradient_inputs& in, const field& dk,
                                          const std::array<index_t, 3>& dk_grid, const pair_weights<C>& weights,
                                          const lane_tile<C>& tile, const column_scale<C>& cs, index_t r0, index_t r1,
                                          const row_scale<C>& rs, const C* c, kept_keys<C>* kept) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  constexpr index_t M = tuning<C>::MR;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  C k[M * L], v[M * L], dv_out[M * L], dk_out[M * L];
  const key_reader<C> keys(p, tile);
  keys.read(r0, r1, k, v);
  keys.prefetch(r1, r1 + M);
  const vec<C> zero(C(0)), one(C(1)), range(exp_constants<C>::range), inverse_scale = load(cs.inverse_scale);
  const vec<C> lift = load(cs.lift), unlift = load(cs.unlift), nan(std::numeric_limits<C>::quiet_NaN());
  const auto unused = tile.idle();
  for (index_t r = 0; r < r1 - r0; ++r) {
    const vec<C> key = load(k + r * L);
    const vec<C> value = load(v + r * L);
    const auto hidden = (key == vec<C>(-inf)) || unused;
    const vec<C> exponents = load(cs.exponent) + vec<C>(rs.exponent[r]);
    const scaled_factor<C> e(key, exponents, exp_constants<C>::range);
    const vec_sum<C> sum = load_sum(c + r * N);
    vec<C> dv = e.times(sum.num, inverse_scale, one);
    vec<C> dk_lane = e.times((value * lift) * sum.num - sum.den, inverse_scale, unlift);
    const auto factor_proven = e.within && (vec<C>(rs.base[r]) == zero);
    const auto proven = hidden || (factor_proven && is_finite<C>(dv) && is_finite<C>(dk_lane));
    if (kept != nullptr) {
      // e^k is below 2^-5909 there, and what it is multiplied by below 2^4096: nothing beside what its rows saw. Unless
      // its largest bias is beyond the range too, and may make up for it.
      const auto nothing = hidden || ((key < -range) && (exponents < range) && (vec<C>(rs.base[r]) <= zero));
      const vec<C> factor = times_pow2<C>(e.mantissa, e.scale);
      const vec<C> Y = xsimd::select(nothing, zero, xsimd::select(factor_proven, factor * load(kept->scale), nan));
      store(kept->to + r * N, xsimd::select(nothing, zero, Y * (value * lift)));
      store(kept->to + r * N + L, -Y);
    }
    dv = xsimd::select(hidden, zero, dv);
    dk_lane = xsimd::select(hidden, zero, dk_lane);
    if (!xsimd::all(proven)) {
      C dv_exact[L], dk_exact[L];
      exact_key<C>(in, weights.beside(rs.kept, true), tile, r0 + r, key, value, dv_exact, dk_exact);
      dv = xsimd::select(proven, dv, load(dv_exact));
      dk_lane = xsimd::select(proven, dk_lane, load(dk_exact));
    }
    store(dv_out + r * L, dv);
    store(dk_out + r * L, dk_lane);
  }
  if (p.dv.set) write_panel<C>(p, p.dv, p.grid, tile, r0, r1, M, dv_out);
  if (dk.set) write_panel<C>(p, dk, dk_grid, tile, r0, r1, M, dk_out);
}

/// What the gradients of keys of other ranks follow from. Row by row through a few lane tiles, as memory lies.
template <class C>
[[gnu::noinline]] inline void sum_far_rows(const gradient_inputs& in, const cpu& exec) {
  constexpr index_t L = lanes<C>, tiles = gate_block::tiles, rows = gate_block::rows;
  const backward_problem& p = *in.p;
  const index_t groups = ceil_div(p.d, tiles * L);
  parallel_for(p.B * groups, thread_count(exec), [&](index_t item, int) {
    const index_t first = item % groups * tiles * L;
    const index_t count = ceil_div(min_of(p.d - first, tiles * L), L);
    inplace_vector<lane_tile<C>, tiles> of(count);
    inplace_vector<far_row_sums<C>, tiles> sums(count);
    for (index_t i = 0; i < count; ++i) {
      of[i] = make_lane_tile<C>(item / groups, 0, p.d, first + i * L, p.d);
      sums[i] = far_row_sums<C>(p, of[i]);
    }
    saved_rows<C, rows> block;
    for (index_t t0 = 0; t0 < p.Tq; t0 += rows) {
      const index_t t1 = min_of(t0 + rows, p.Tq);
      for (index_t i = 0; i < count; ++i) {
        block.read(in, of[i], t0, t1);
        sums[i].add(block, 0, t1 - t0);
      }
    }
    for (index_t i = 0; i < count; ++i) sums[i].write(p, of[i]);
  });
}

/// Every gradient of the problem that is set. O(B Tq Tk d) multiply-adds for dk and dv together and as many for dw.
template <class C, bool windows>
inline void pair_backward(const backward_problem& p, const cpu& given, bias_gradient_pass<C> pass, scratch& memory) {
  const bias_batch<C> batch_items(p);
  const auto array = static_cast<std::size_t>(p.B * max_of(p.Tq, p.Tk) * p.d) * sizeof(C);
  const bool paired = multiplies_in_pairs<C>(p) && !query_geometry(p).bounded;
  bool products = false;
  if constexpr (windows) {
    // Sums for wide windows of long sequences with few channels would be more than all arrays of the call.
    products = product_plan<C>::serves(p) && product_plan<C>::fits(p, tile_bytes / 2 + 4 * array, [&] {
                 scratch counter;
                 return fold_plan<C>(key_geometry(p), batch_items.count(), batch_items.tiles(), batch_items.run(), 1,
                                     fold_traits{.windows = true, .products = true}, counter);
               });
  }
  const bool keys_wanted = products || ((p.dk.set || p.dv.set) && p.B > 0 && p.Tk > 0 && p.d > 0);
  const bool shared = keys_wanted && p.dk.set && p.hk != p.d;
  const bool served = windows && (products || !states_rows(p) || p.average.type == dtype_of<C>);
  field dk = p.dk;
  const std::array<index_t, 3> dk_grid = shared ? std::array<index_t, 3>{1, 1, p.Tk} : p.grid;
  std::optional<fold_plan<C>> plan;
  std::optional<bias_gradient_job<C>> bias;
  std::optional<std::conditional_t<windows, product_plan<C>, bool>> product;
  per_thread<C> staged;
  const auto plan_fold = [&](int threads, scratch& from) {
    plan.emplace(key_geometry(p), batch_items.count(), batch_items.tiles(), batch_items.run(), threads,
                 fold_traits{.pairs = paired,
                             .windows = served,
                             .products = products,
                             .columns = p.bias.kind == bias_kind::dense || p.bias.kind == bias_kind::generated,
                             .sums = p.dk.set || p.dv.set,
                             .rows_kept = p.bias.kind == bias_kind::generated},
                 from);
    if (plan->order != loop_order::window) staged = from.take_each<C>(plan->pack_group * staged_queries<C>, threads);
  };
  const auto bytes_of_tiles = [&](int threads) {
    scratch counter;
    if (keys_wanted) plan_fold(threads, counter);
    if constexpr (windows) {
      if (products) product_plan<C>(p, *plan, counter);
    }
    if (p.dbias.kind != bias_kind::none && !products)
      bias_gradient_plan<C>(p, p.bias.batch > 1 && p.B > 1, paired, threads, counter);
    return counter.counted();
  };
  cpu exec = given;
  exec.threads = threads_within(tile_bytes + (products ? 7 : 3) * array, thread_count(given), bytes_of_tiles);
  const int threads = exec.threads;
  if (is_trial(given)) exec = trial_of(exec, threads);
  const auto lay_out = [&](scratch& from) {
    if (shared) dk = scratch_field<C>(from, p.B, p.Tk, p.d);
    if (keys_wanted) plan_fold(threads, from);
    if (p.dbias.kind != bias_kind::none) bias.emplace(p, threads, pass, !products, paired, from);
    if constexpr (windows) {
      if (products) product.emplace(p, *plan, from);
    }
  };
  scratch counter;
  lay_out(counter);
  // Where every row is read once, by the fold, the gate is formed there too: the sigmoid alone, and with an lse of
  // every channel, for form_gated_rows is made for those.
  const bool side_by_side =
      products && (batch_items.run() % plan->group == 0 || batch_items.tiles() == batch_items.run());
  const bool gates_later =
      side_by_side && plan->keys_resident && states_rows(p) && p.gate_fn == gate::sigmoid && p.hk == p.d;
  if (!gates_later) count_incoming<C>(p, counter);
  const std::size_t reserved = memory.reserve(counter);

  const staged_factors<C> factors = stage_factors<C>(p, memory, true, true);
  const gradient_inputs in =
      prepare_gradient<C>(p, gates_later, memory, [&](const problem& forward, const row_state& state) {
        scratch own(exec);
        pair_forward<C, windows>(forward, state, exec, own, tile_bytes - min_of(reserved, tile_bytes));
        // Numbers decide whether bases are kept, and a trial has none.
        if (is_trial(exec)) state.beyond->store(true);
      });
  lay_out(memory);
  if (is_trial(exec)) return;

  // Nothing below takes memory, so from here on the call cannot fail half-way.
  C* const max_abs = bias ? bias->max_abs() : nullptr;
  for (index_t i = 0; max_abs != nullptr && i < threads * lanes<C>; ++i) max_abs[i] = C(0);
  if (!gates_later) gate_gradient<C>(in, exec, max_abs);
  if constexpr (windows) {
    if (p.afar.joins_rows() && p.afar.slope != nullptr) sum_far_rows<C>(in, exec);
  }
  const auto fold = [&] {
    for_each_batch_item(*plan, batch_items.count(), [&](index_t i, int thread) {
      const auto batch_item = batch_items.at(i);
      const pair_weights<C> weights(p, factors, batch_item.b, batch_item.h);
      const auto fill = [&](index_t r0, index_t r1, index_t t0, index_t t1, C* out, index_t ld) {
        weights.columns(r0, r1, t0, t1, out, ld);
        return log_weights<C>{out, ld, false};
      };
      const auto epilogue = [&](index_t tile, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                                const C* c, kept_keys<C>* kept = nullptr) {
        key_epilogue<C>(in, dk, dk_grid, weights, batch_items.tile(batch_item, tile), cs, r0, r1, rs, c, kept);
      };
      if constexpr (windows) {
        if (plan->order == loop_order::window) {
          std::optional<window_products<C>> pairs;
          if (products) pairs.emplace(in, *product, *plan, batch_items, batch_item, *bias, thread);
          const auto run = [&](const fold_item& item) {
            const window_tiles<C> tiles(item.count, plan->group_tiles.of(item.slot),
                                        [&](index_t j) { return batch_items.tile(batch_item, item.tile + j); });
            C* const highest = max_abs != nullptr ? max_abs + item.slot * lanes<C> : nullptr;
            window_query_packer<C> source(in, tiles, plan->sources.of(item.slot), highest, item.first == 0);
            fold_window_item<C>(*plan, thread, item, source, quick_gradients<C>(p, dk, dk_grid, tiles),
                                window_lines<C>(0), pairs ? &*pairs : nullptr, epilogue_ref<C>(epilogue));
          };
          fold_window<C>(*plan, thread, batch_items.tiles(), fill_ref<C>(fill), run);
          if (pairs) pairs->rows(weights);
          return;
        }
      }
      const auto pack = [&](int slot, index_t tile, index_t n, C* P, column_scale<C>* scales) {
        pack_queries<C>(
            in, n, [&](index_t j) { return batch_items.tile(batch_item, tile + j); }, plan->paired, plan->column_size,
            staged.of(slot), P, scales);
      };
      fold_pairs<C>(*plan, thread, batch_items.tiles(), fill_ref<C>(fill), pack_ref<C>(pack), sums_ref<C>(epilogue));
    });
  };
  if (keys_wanted) {
    if constexpr (windows) {
      if (products) product->scale = find_gradient_scale<C>(in, threads, max_abs);
    }
    fold();
    if constexpr (windows) {
      // Gradients that were found to be far from ordinary size are multiplied again, scaled.
      if (gates_later) {
        const gradient_scale<C> scale = find_gradient_scale<C>(in, threads, max_abs);
        const bool rescaled = scale.by != product->scale.by;
        product->scale = scale;
        if (rescaled) fold();
      }
    }
    if (shared) sum_shared_keys<C>(p, dk, exec);
  }
  if (bias && !products) bias->run(in, factors);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
