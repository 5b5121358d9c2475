// SPDX-License-Identifier: Apache-2.0
/// @file fold/keys.cuh  The fold with time transposed, which gives dv and dk: 32 channels and 16 keys a block.
///
///     dv[s] = sum_t a[t,s] g[t],  dk[s] = sum_t a[t,s] g[t] (v[s] - o[t]),  a = exp(k + w - lse)
/// Weights are at most 1, so there is no maximum to keep.
#pragma once

#include "forward.cuh"
#include "query_sum.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

template <class C>
struct key_fold_buffers {
  split_exp<C> weights[fold_rows][tuning::depth + 1];
  staged_query<C> queries[tuning::depth][tuning::lanes];
  tile_looks looks;
};

/// A key of one column, and its sums.
template <class C>
struct key_fold {
  C key, value;
  split_exp<C> split;
  C dv, dk;
};

template <class C>
AFT_DEVICE void stage_queries(const device_call<C>& p, const column& col, index_t t0, key_fold_buffers<C>& tile) {
  const int lane = thread_index() % warp_size;
  for (int i = thread_index() / warp_size; i < tuning::depth; i += tuning::warps) {
    const bool exists = col.exists && t0 + i < p.Tq;
    tile.queries[i][lane] = exists ? stage_query(p, col.b, t0 + i, col.c) : staged_query<C>{C(0), C(0), C(0)};
  }
}

/// Weights of keys s0.. and queries t0.., read along the rows of w; those of pairs that do not exist hide.
template <class C>
AFT_DEVICE void stage_columns(const device_call<C>& p, index_t b, index_t h, index_t s0, index_t s_end, index_t t0,
                              key_fold_buffers<C>& tile) {
  for (int i = thread_index(); i < fold_rows * tuning::depth; i += fold_threads) {
    const index_t s = s0 + i % fold_rows;
    const index_t t = t0 + i / fold_rows;
    const C w = s < s_end && t < p.Tq ? visible_weight(p, b, h, t, s) : -number<C>::infinity;
    tile.weights[i % fold_rows][i / fold_rows] = stage_logit(w);
  }
}

/// Adds to a key's gradients those of the queries beyond the tiles; false where only the sum of all pairs will do.
template <class C>
AFT_DEVICE bool add_uniform_queries(const uniform_sums<query_sum<C>>& uniform, const tile_span& inner,
                                    const column& col, const split_exp<C>& weight, C value, C& dv, C& dk) {
  return (uniform.before == nullptr ||
          add_queries(uniform_sum_at(uniform, uniform.before, inner.begin, col.b, col.c), weight, value, dv, dk)) &&
         (uniform.after == nullptr ||
          add_queries(uniform_sum_at(uniform, uniform.after, inner.end, col.b, col.c), weight, value, dv, dk));
}

/// The keys of a tile. With folds of the outside, flags what it cannot sum with them; without, it can sum anything.
template <class C>
AFT_DEVICE void fold_key_tile(const device_call<C>& p, const fold_plan& plan, const uniform_sums<query_sum<C>>& uniform,
                              const fold_place& at, key_fold_buffers<C>& tile) {
  const int lane = thread_index() % warp_size;
  const int first = thread_index() / warp_size * tuning::rows_per_thread;
  const column col = plan.cols.at(at.batch_item, at.first_column + lane);
  const index_t h = plan.cols.head(at.batch_item);
  const index_t b = plan.cols.batch(at.batch_item);
  const index_t s_end = at.first_row + fold_rows < plan.r1 ? at.first_row + fold_rows : plan.r1;
  const span queries = window_queries_of(p, uniform, at.first_row, s_end);

  key_fold<C> keys[tuning::rows_per_thread];
  AFT_DEVICE_UNROLL
  for (int r = 0; r < tuning::rows_per_thread; ++r) {
    const index_t s = at.first_row + first + r;
    const bool exists = col.exists && s < s_end;
    key_fold<C>& own = keys[r];
    own.key = exists ? load_key(p, col.b, s, col.c) : -number<C>::infinity;
    own.value = own.key != -number<C>::infinity ? load<C>(p.v, p.positions, col.b, s, col.c) : C(0);
    own.split = stage_logit(own.key);
    own.dv = own.dk = C(0);
  }

  for (index_t t0 = queries.lo / tuning::depth * tuning::depth; t0 < queries.hi; t0 += tuning::depth) {
    sync();
    stage_queries(p, col, t0, tile);
    stage_columns(p, b, h, at.first_row, s_end, t0, tile);
    sync();
    AFT_DEVICE_UNROLL
    for (int r = 0; r < tuning::rows_per_thread; ++r) {
      key_fold<C>& own = keys[r];
      C dv = C(0), dk = C(0);
      AFT_DEVICE_UNROLL_BY(2)
      for (int t = 0; t < tuning::depth; ++t) {
        const split_exp<C> weight = tile.weights[first + r][t];
        const staged_query<C> query = tile.queries[t][lane];
        if (weight.mantissa == C(0) || own.split.mantissa == C(0)) continue;
        const C e = own.split.exponent + weight.exponent - query.exponent;
        C factor;
        if (e == e) {
          factor = own.split.mantissa * weight.mantissa * pow2<C>(e);
        } else {
          const saved_row<C> u = load_saved_row(p, col.b, t0 + t, col.c);
          if (u.inverse == C(0)) continue;
          factor = exact_weight(u, own.key, visible_weight(p, b, h, t0 + t, at.first_row + first + r));
        }
        const C ag = factor * query.g;
        dv += ag;
        dk = add_difference(ag, own.value, query.o, dk);
      }
      own.dv += dv;
      own.dk += dk;
    }
  }

  AFT_DEVICE_UNROLL
  for (int r = 0; r < tuning::rows_per_thread; ++r) {
    const index_t s = at.first_row + first + r;
    const index_t flag = at.tile * fold_rows + first + r;
    key_fold<C>& own = keys[r];
    const bool wanted = col.exists && s < s_end && (!plan.only_flagged || (plan.flags[flag] >> lane & 1u) != 0);
    bool done = wanted;
    if (uniform.used) {
      if (wanted && own.key != -number<C>::infinity)
        done = add_uniform_queries(uniform, tiles_of(queries), col, own.split, own.value, own.dv, own.dk);
      const std::uint32_t word = ballot(wanted && !done);
      if (lane == 0) plan.flags[flag] = word;
    }
    if (!done) continue;
    if (p.dv.set) store<C>(p.dv, p.positions, col.b, s, col.c, own.dv);
    if (p.dk.set) store<C>(p.dk, p.positions, col.b, s, col.c, own.dk);
  }
}

template <class C>
AFT_KERNEL(fold_threads, sizeof(C) == 8 ? 1 : 2)
fold_keys_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER fold_plan plan,
                 const AFT_PARAMETER uniform_sums<query_sum<C>> uniform) {
  key_fold_buffers<C>& tile = shared<key_fold_buffers<C>>();
  visit_tiles(plan, tile.looks, [&](const fold_place& at) { fold_key_tile(p, plan, uniform, at, tile); });
}

inline constexpr int shared_key_threads = 256;

/// dk[b,s,kc] = the sum over the value channels that share key channel kc, in their order. `per_channel` is (B, Tk, d).
template <class C>
AFT_KERNEL(shared_key_threads, 4)
sum_shared_keys_kernel(const AFT_PARAMETER device_call<C> p, const C* per_channel) {
  const index_t i = block_index() * shared_key_threads + thread_index();
  if (i >= p.B * p.Tk * p.hk) return;
  const index_t row = i / p.hk;
  const index_t kc = i % p.hk;
  const index_t group = p.d / p.hk;
  const C* const from = per_channel + row * p.d + kc * group;
  C sum = C(0);
  for (index_t c = 0; c < group; ++c) sum += from[c];
  store<C>(p.dk, p.positions, row / p.Tk, row % p.Tk, kc, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
