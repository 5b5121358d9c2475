// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/keys.cuh  The product of split_mma/forward.cuh with time transposed, which gives dv and dk.
///
///     dv[s] = e^k[s] A,  dk[s] = e^k[s] (v[s] A - B),  A = sum_t e^w e^-lse g,  B = sum_t e^w e^-lse g o
/// A row's den is A here and its num B. Elements that are not proven are flagged, and fold_keys sums them again.
#pragma once

#include "../fold/keys.cuh"
#include "forward.cuh"
#include "pack_queries.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

union tensor_key_buffers {
  struct {
    packed_tile queries[2];
    weight_tile weights;
    union {
      float raw[product_rows][tuning::depth + 1];  // a column more than there are: it is written down its columns
      hidden_buffers hidden;
    };
  } loop;
  struct {
    key_sum<float> sums[product_rows][tuning::lanes + 4];
  } end;
};

/// Weights of keys s0.. and queries t0.., read along the rows of w; -inf where there is no pair, or a hidden one.
AFT_DEVICE void load_columns(const device_call<float>& p, index_t b, index_t h, index_t s0, index_t s_end, index_t t0,
                             float (&raw)[product_rows][tuning::depth + 1], weight_part& part) {
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = thread_index(); i < product_rows * tuning::depth; i += product_threads) {
    const index_t s = s0 + i % product_rows;
    const index_t t = t0 + i / product_rows;
    raw[i % product_rows][i / product_rows] =
        s < s_end && t < p.Tq ? visible_weight(p, b, h, t, s) : -number<float>::infinity;
  }
  sync();
  const int first = thread_index() % weight_part::row_threads * 4;
  AFT_DEVICE_UNROLL
  for (int r = 0; r < weight_part::rows; ++r) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i)
    part.w[r][i] = raw[thread_index() / weight_part::row_threads + r * weight_part::row_step][first + i];
}

AFT_DEVICE void stage_hidden_queries(const device_call<float>& p, const column& col, index_t b, index_t h, index_t s0,
                                     index_t s_end, index_t t0, hidden_buffers& tile) {
  const int lane = thread_index() % warp_size;
  for (int i = thread_index() / warp_size; i < hidden_depth; i += tuning::product_warps) {
    const bool exists = col.exists && t0 + i < p.Tq;
    const staged_query<float> q = exists ? stage_query(p, col.b, t0 + i, col.c) : staged_query<float>{0.0f, 0.0f, 0.0f};
    split_exp<float> x{0.0f, no_exponent<float>};
    if (q.g != 0.0f) {
      x = {q.g * pow2<float>(-value_exponent(magnitude(q.g))), query_exponent(q)};
      if (x.exponent != x.exponent) x.mantissa = x.exponent;
    } else if (!is_finite(q.o)) {
      x.mantissa = number<float>::nan;  // 0 times what is no number is none
    }
    tile.keys[i][lane] = x;
    tile.values[i][lane] = q.o;
  }
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = thread_index(); i < product_rows * hidden_depth; i += product_threads) {
    const int row = i % product_rows;
    const index_t s = s0 + row;
    const index_t t = t0 + i / product_rows;
    const float w = s < s_end && t < p.Tq ? visible_weight(p, b, h, t, s) : -number<float>::infinity;
    tile.weights[row][i / product_rows] = stage_logit(w);
  }
}

/// A key's gradients in one channel.
struct key_gradient {
  float dv, dk;
  bool proven;
};

/// Nothing that counts was lost: what the operands' range cost is below 2^-25 of |A|, and so for B in units of the
/// largest |o|; and no factor of dk is near the ends of the type. Sums that only cancel to a small |A| are folded.
template <class Operand>
AFT_DEVICE key_gradient gradient_of(const key_sum<float>& sum, float key, float value, float terms) {
  const split_exp<float> k = stage_logit(key);
  const float exponent = k.exponent + sum.max;
  const auto ordinary = [](float x) { return x == 0.0f || magnitude(x) >= number<float>::least_value; };
  // Nothing was added but zeros.
  if (sum.den == 0.0f && sum.num == 0.0f && sum.max < no_exponent<float> / 2.0f && k.mantissa == k.mantissa &&
      is_finite(value))
    return {0.0f, 0.0f, true};
  // In two steps, for a result among the denormal numbers.
  const float most = exponent < -120.0f ? -120.0f : exponent;
  const float difference = fused(value, sum.den, -sum.num);
  key_gradient g{};
  g.dv = k.mantissa * sum.den * pow2<float>(most) * pow2<float>(exponent - most);
  g.dk = k.mantissa * difference * pow2<float>(most) * pow2<float>(exponent - most);
  g.proven = exponent <= 120.0f && is_finite(g.dv) && is_finite(g.dk) &&
             magnitude(sum.den) >= terms * (Operand::lost * 0x1p25f) && ordinary(value) && ordinary(sum.largest);
  return g;
}

/// Rows are keys; `plan.keys` holds the packed queries.
template <class Operand>
AFT_KERNEL(product_threads, 2)
key_product_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER product_plan plan,
                   const AFT_PARAMETER uniform_sums<query_sum<float>> uniform) {
  tensor_key_buffers& buffers = shared<tensor_key_buffers>();
  const fold_plan& rows = plan.rows;
  const product_place place = product_place::of(plan, block_index());
  const index_t s_end = place.first_row + product_rows < rows.r1 ? place.first_row + product_rows : rows.r1;
  const index_t h = rows.cols.head(place.batch_item);
  const index_t b = rows.cols.batch(place.batch_item);
  const int lane = thread_index() % warp_size;
  const column col = rows.cols.at(place.batch_item, place.column_tile * tuning::lanes + lane);
  const tile_span tiles_seen = tiles_of(window_queries_of(p, uniform, place.first_row, s_end));
  const warp_tile at = warp_tile::own();
  const packed_tile* const packed = place.tiles(plan);

  row_sums sums;
  const auto [begin, end] = tiles_seen;
  if (begin < end) start_copy(packed[begin], buffers.loop.queries[begin % 2]);
  commit_copies();
  for (int tile = begin; tile < end; ++tile) {
    const index_t t0 = tile * index_t{tuning::depth};
    const packed_tile& own = buffers.loop.queries[tile % 2];
    sync();  // all threads have done with the weights, and with the queries of the tile before
    if (tile + 1 < end) start_copy(packed[tile + 1], buffers.loop.queries[(tile + 1) % 2]);
    commit_copies();
    weight_part part;
    load_columns(p, b, h, place.first_row, s_end, t0, buffers.loop.raw, part);
    const int exist = p.Tq - t0 < tuning::depth ? static_cast<int>(p.Tq - t0) : tuning::depth;
    const bool any_part = pack_weights<Operand>(part, exist, buffers.loop.weights);
    wait_copies<1>();
    const bool hides = sync_any(any_part);
    tile_sums acc;
    if (ballot(buffers.loop.weights.view[at.first_row + lane] == row_view::all) != 0) {
      multiply_tile<Operand>(buffers.loop.weights.operand, own.operand, at, acc);
      merge_tile<Operand>(buffers.loop.weights, own, at, acc, sums);
    }
    if (!hides) continue;
    AFT_DEVICE_UNROLL_BY(1)
    for (int i = 0; i < tuning::depth; i += hidden_depth) {
      sync();
      stage_hidden_queries(p, col, b, h, place.first_row, s_end, t0 + i, buffers.loop.hidden);
      sync();
      add_hidden(buffers.loop.hidden, buffers.loop.weights.view, at, acc, sums);
    }
  }
  wait_copies<0>();

  sync();
  hand_over(sums, at, buffers.end.sums);
  sync();
  const float terms = static_cast<float>(tiles_seen.end - tiles_seen.begin) * tuning::depth;
  AFT_DEVICE_UNROLL_BY(1)
  for (int r = thread_index() / warp_size; r < product_rows; r += tuning::product_warps) {
    const index_t s = place.first_row + r;
    if (s - rows.r0 >= rows.row_tiles * fold_rows) break;
    const bool wanted = col.exists && s < s_end;
    const float key = wanted ? load_key(p, col.b, s, col.c) : -number<float>::infinity;
    key_gradient g{0.0f, 0.0f, true};
    if (key != -number<float>::infinity) {
      const float value = load<float>(p.v, p.positions, col.b, s, col.c);
      g = gradient_of<Operand>(buffers.end.sums[r][lane], key, value, terms);
      g.proven = g.proven && add_uniform_queries(uniform, tiles_seen, col, stage_logit(key), value, g.dv, g.dk);
    }
    const std::uint32_t word = ballot(wanted && !g.proven);
    if (lane == 0) rows.flags[place.flag(plan, s)] = word;
    if (!wanted || !g.proven) continue;
    if (p.dv.set) store<float>(p.dv, p.positions, col.b, s, col.c, g.dv);
    if (p.dk.set) store<float>(p.dk, p.positions, col.b, s, col.c, g.dk);
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
