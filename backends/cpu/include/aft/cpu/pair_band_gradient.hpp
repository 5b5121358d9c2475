// SPDX-License-Identifier: Apache-2.0
/// @file pair_band_gradient.hpp  dw[t,s] = sum_{b, c in head} a[t,s,c] g[t,c] (v[s,c] - o[t,c]) for narrow windows.
///
/// The sums of pair_bias_gradient.hpp with channels as lanes: nothing is transposed, and a tile can be as small as a
/// band wants it, but every pair's lanes are added up in the end. A block of queries goes through all columns (b, c),
/// a few lane tiles at a time; each time kappa and rho are those of the block and these columns, so nothing has to be
/// known of the rest, and the product with exp(w) 2^rho joins the sums at once.
#pragma once

#include <cstring>

#include "exp_parts.hpp"
#include "pair_bias_gradient.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The blocks and buffers of one call. Blocks depend on the shape alone, so no result depends on threads.
template <class C>
struct band_plan {
  static constexpr index_t L = lanes<C>;
  static constexpr index_t E = tuning<C>::band_rows;
  static constexpr index_t K = tuning<C>::band_keys;
  static constexpr index_t G = tuning<C>::band_group;

  index_t before = 0;  ///< of a row t the pairs s = t - before + j with 0 <= j < width have a bias
  index_t width = 0;
  index_t block = 0;
  index_t blocks = 0;
  index_t reach = 0;        ///< keys of a strip of E queries, whole tiles
  index_t keys = 0;         ///< keys of a block
  index_t line = 0;         ///< `width` in whole vectors: weights and sums of a row
  index_t cells = 0;        ///< products of a row, which begin up to E - 1 keys before its band
  gradient_scale<C> scale;  ///< known when the gradients are
  C *queries = nullptr, *columns = nullptr, *products = nullptr;
  C *mantissa = nullptr, *exponent = nullptr, *sums = nullptr, *rows = nullptr;

  static index_t whole(index_t n, index_t step) { return (n + step - 1) / step * step; }

  /// Windows for which it is faster, and biases whose gradient is stored pair by pair.
  static bool serves(const backward_problem& p) {
    const bool stored = p.dbias.kind == bias_kind::dense || p.dbias.kind == bias_kind::banded;
    const bool batched = p.bias.batch > 1 && p.B > 1;
    const bool mask_per_batch = !batched && p.B > 1 && p.pair_mask() && p.mask_sb != 0;
    return stored && p.win.bounded && !mask_per_batch && p.win.before + p.win.after + 1 <= tuning<C>::band_widest;
  }

  band_plan() = default;
  band_plan(const backward_problem& p, int threads, scratch& memory) {
    const index_t after = p.causal && p.win.after > 0 ? 0 : p.win.after;
    before = p.win.before;
    width = before + after + 1 > 0 ? before + after + 1 : 0;
    block = whole(p.Tq / 8, E);
    block = block > tuning<C>::band_block ? tuning<C>::band_block : block;
    block = block < tuning<C>::band_least ? tuning<C>::band_least : block;
    blocks = (p.Tq + block - 1) / block;
    reach = whole(width + E - 1, K);
    keys = block - E + reach;
    line = whole(width, L);
    cells = line + E + K;
    queries = memory.take<C>(threads * block * G * 2 * L);
    columns = memory.take<C>(threads * keys * G * 2 * L);
    products = memory.take<C>(threads * block * cells);
    mantissa = memory.take<C>(threads * block * line);
    exponent = memory.take<C>(threads * block * line);
    sums = memory.take<C>(threads * block * line);
    rows = memory.take<C>(threads * row_buffers * column_chunk * G * L);
  }
  static constexpr index_t row_buffers = 6;
};

/// One block of queries of one head, and the buffers of the thread that works on it.
template <class C>
class band_block {
 public:
  static constexpr index_t L = lanes<C>;
  static constexpr index_t E = band_plan<C>::E;
  static constexpr index_t K = band_plan<C>::K;
  static constexpr index_t G = band_plan<C>::G;
  static constexpr index_t pair = 2 * L;

  band_block(const gradient_inputs& in, const band_plan<C>& plan, const pair_weights<C>& weights,
             const gradient_columns<C>& columns, index_t block, int thread)
      : in_(&in),
        plan_(&plan),
        weights_(&weights),
        columns_(&columns),
        t0_(block * plan.block),
        t1_(t0_ + plan.block < in.p->Tq ? t0_ + plan.block : in.p->Tq),
        s0_(t0_ - plan.before),
        queries_(plan.queries + thread * plan.block * G * pair),
        keys_(plan.columns + thread * plan.keys * G * pair),
        products_(plan.products + thread * plan.block * plan.cells),
        mantissa_(plan.mantissa + thread * plan.block * plan.line),
        exponent_(plan.exponent + thread * plan.block * plan.line),
        sums_(plan.sums + thread * plan.block * plan.line),
        rows_(plan.rows + thread * band_plan<C>::row_buffers * column_chunk * G * L) {}

  /// Hands row(t, first, last, dw) the gradients of the keys [first, last) of every query.
  template <class Row>
  void run(const Row& row) {
    const backward_problem& p = *in_->p;
    split_weights();
    const index_t dh = columns_->dh;
    // Lanes that cross a batch element are gathered one by one: worth it only where a head is narrow.
    const index_t stretch = dh % L == 0 || dh < 4 * L ? columns_->count : dh;
    const auto end_of = [&](index_t n) {
      const index_t end = (n / stretch + 1) * stretch;
      return n + G * L < end ? n + G * L : end;
    };
    for (index_t n0 = 0; n0 < columns_->count; n0 = end_of(n0)) {
      const index_t n1 = end_of(n0);
      count_ = place(n0, n1, tiles_);
      pack_keys();
      pack_queries();
      if (n1 < columns_->count) {
        lane_tile<C> tiles[G];
        const index_t count = place(n1, end_of(n1), tiles);
        const inputs next(*in_, tiles, count);
        multiply(&next);
      } else {
        multiply(nullptr);
      }
      add_weighted(n0, n1);
    }
    for (index_t t = t0_; t < t1_; ++t) {
      const index_t first = t - plan_->before > 0 ? t - plan_->before : 0;
      const index_t last = t - plan_->before + plan_->width < p.Tk ? t - plan_->before + plan_->width : p.Tk;
      if (first >= last) {
        row(t, 0, 0, sums_);
        continue;
      }
      row(t, first, last, sums_ + (t - t0_) * plan_->line + first - (t - plan_->before));
    }
  }

 private:
  /// What is packed of a few lane tiles.
  struct inputs {
    std::array<index_t, 3> flat;
    lane_group<C> k, v, g, o, weights;
    inputs(const gradient_inputs& in, const lane_tile<C>* tiles, index_t count)
        : flat{1, 1, in.p->Tq},
          k(in.p->k, in.p->grid, tiles, count, in.p->d / in.p->hk),
          v(in.p->v, in.p->grid, tiles, count, 1),
          g(in.g, flat, tiles, count, 1),
          o(in.average, in.p->grid, tiles, count, 1),
          weights(in.from_lse ? in.p->lse : in.state.inverse, in.from_lse ? in.p->grid : flat, tiles, count,
                  in.p->d / state_channels(*in.p)) {}
    [[gnu::always_inline]] void ask_queries(index_t t0, index_t t1) const {
      g.prefetch(t0, t1);
      o.prefetch(t0, t1);
      weights.prefetch(t0, t1);
    }
    [[gnu::always_inline]] void ask_keys(index_t s0, index_t s1) const {
      k.prefetch(s0, s1);
      v.prefetch(s0, s1);
    }
  };

  index_t place(index_t n0, index_t n1, lane_tile<C>* tiles) const {
    const index_t count = (n1 - n0 + L - 1) / L;
    for (index_t i = 0; i < count; ++i) tiles[i] = columns_->tile(n0 + i * L, n1);
    return count;
  }

  /// exp(w) of the block's pairs in two parts: mantissa 0 where the pair is hidden, exponent NaN beyond the range.
  [[gnu::flatten]] void split_weights() {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const vec<C> zero(C(0)), range(exp_constants<C>::range), nan(std::numeric_limits<C>::quiet_NaN());
    const index_t line = plan_->line;
    for (index_t t = t0_; t < t1_; ++t) {
      C* const w = mantissa_ + (t - t0_) * line;
      C* const e = exponent_ + (t - t0_) * line;
      C* const sum = sums_ + (t - t0_) * line;
      const index_t from = t - plan_->before;
      index_t first = from > 0 ? from : 0;
      index_t last = from + plan_->width < in_->p->Tk ? from + plan_->width : in_->p->Tk;
      if (first >= last) first = last = from;
      for (index_t j = 0; j < first - from; ++j) w[j] = -inf;
      weights_->row(t, first, last, w + (first - from));
      for (index_t j = last - from; j < line; ++j) w[j] = -inf;
      for (index_t j = 0; j < line; j += L) {
        const vec<C> x = load(w + j);
        const auto hidden = x == vec<C>(-inf);
        const auto within = xsimd::abs(x) <= range;
        const split_exp<C> parts = exp_split<C>(xsimd::select(within, x, zero));
        store(w + j, xsimd::select(hidden, zero, parts.mantissa));
        store(e + j, xsimd::select(within || hidden, parts.exponent, nan));
        store(sum + j, zero);
      }
    }
  }

  /// keys[j] = [Y v | Y] of every lane tile with Y = exp(k - kappa); 0 for hidden keys and those that do not exist.
  [[gnu::flatten]] void pack_keys() {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const backward_problem& p = *in_->p;
    const index_t first = s0_ > 0 ? (s0_ < p.Tk ? s0_ : p.Tk) : 0;
    const index_t end = s0_ + plan_->keys;
    const index_t last = end < p.Tk ? (end > first ? end : first) : p.Tk;
    const index_t count = count_;
    const vec<C> zero(C(0)), none(-inf), range(exp_constants<C>::range), nan(std::numeric_limits<C>::quiet_NaN());
    const vec<C> low(-exp_constants<C>::range), lowest(exp_constants<C>::lowest), lift(plan_->scale.lift);
    const auto blank = [&](index_t from, index_t to) {
      for (C* x = keys_ + from * G * pair; x < keys_ + to * G * pair; x += L) store(x, zero);
    };
    if (first >= last) {
      for (index_t i = 0; i < count; ++i) store(kappa_ + i * L, zero);
      return blank(0, plan_->keys);
    }
    blank(0, first - s0_);
    blank(last - s0_, plan_->keys);
    const lane_group<C> keys(p.k, p.grid, tiles_, count, p.d / p.hk), values(p.v, p.grid, tiles_, count, 1);
    const bool hides = hides_keys(p);
    vec<C> top[G];
    for (index_t i = 0; i < count; ++i) top[i] = none;
    for (index_t a = first; a < last; a += column_chunk) {
      const index_t b = a + column_chunk < last ? a + column_chunk : last;
      const staged_rows<C> k = keys.rows(a, b, rows_, -inf, hides);
      const staged_rows<C> v = values.rows(a, b, rows_ + column_chunk * G * L);
      for (index_t i = 0; hides && i < count; ++i) hide_keys(p, tiles_[i], a, b, rows_ + i * k.apart);
      for (index_t s = a; s < b; ++s) {
        C* const at = keys_ + (s - s0_) * G * pair;
        const index_t soon = s + ahead < last ? ahead : 0;
        for (index_t i = 0; i < count; ++i) {
          const C* const kr = k.at(s - a, i);
          const C* const vr = v.at(s - a, i);
          prefetch(kr, soon * k.step);
          prefetch(vr, soon * v.step);
          const vec<C> key = load(kr);
          top[i] = max_ignoring_nan<C>(top[i], key);
          store(at + i * pair, load(vr) * lift);
          store(at + i * pair + L, key);
        }
      }
    }
    for (index_t i = 0; i < count; ++i) {
      const vec<C> high = xsimd::select(top[i] == none, zero, top[i]);
      const vec<C> kappa = xsimd::select((high <= range) && (high >= lowest), exponent_of<C>(high), nan);
      store(kappa_ + i * L, kappa);
    }
    for (index_t s = first; s < last; ++s) {
      C* const at = keys_ + (s - s0_) * G * pair;
      for (index_t i = 0; i < count; ++i) {
        const vec<C> key = load(at + i * pair + L);
        const vec<C> kappa = load(kappa_ + i * L);
        const auto seen = differs<C>(key, none);
        // A key beyond the range with kappa within it is far below and rightly 0; NaN kappa makes NaN.
        const split_exp<C> e = exp_parts<C>(xsimd::select(key < low, low, key));
        const vec<C> y = xsimd::select(seen, times_pow2<C>(e.mantissa, e.exponent - kappa) + (kappa - kappa), zero);
        store(at + i * pair + L, y);
        store(at + i * pair, xsimd::select(seen, y * load(at + i * pair), zero));
      }
    }
  }

  /// queries[t] = [X g | -X g o] of every lane tile with X = exp(kappa - lse) 2^-rho, rho[t] the largest exponent.
  [[gnu::flatten]] void pack_queries() {
    const backward_problem& p = *in_->p;
    const index_t count = count_;
    const vec<C> zero(C(0)), none(-std::numeric_limits<C>::infinity());
    const vec<C> nan(std::numeric_limits<C>::quiet_NaN()), by(plan_->scale.by), lift(plan_->scale.lift);
    const index_t size = column_chunk * G * L;
    for (index_t a = t0_; a < t1_; a += band_chunk) {
      const index_t b = a + band_chunk < t1_ ? a + band_chunk : t1_;
      const query_rows<C> up(*in_, tiles_, count, a, b, rows_, size);
      for (index_t t = a; t < b; ++t) {
        C* const at = queries_ + (t - t0_) * G * pair;
        const index_t soon = t + ahead < p.Tq ? ahead : 0;
        vec<C> most = none;
        vec<C> e[G];
        for (index_t i = 0; i < count; ++i) {
          const lane_state<C> state = up.weights(t - a, i, soon);
          const vec<C> kappa = load(kappa_ + i * L);
          const auto empty = state.inverse == zero;
          e[i] = kappa - state.exponent;
          most = max_ignoring_nan<C>(most, xsimd::select(empty, none, e[i]));
          vec<C> g = state.inverse * (up.g(t - a, i, soon) * by);
          // Lanes whose logits lie beyond the range send the whole row to the definition.
          g = xsimd::select(differs<C>(state.base_hi, zero), nan, g);
          g = xsimd::select(empty, zero, g);
          store(at + i * pair, g);
          store(at + i * pair + L, xsimd::select(empty, zero, up.o(t - a, i, soon) * lift));
        }
        C lane[L];
        store(lane, most);
        C top = lane[0];
        for (index_t l = 1; l < L; ++l) top = lane[l] > top ? lane[l] : top;
        const C rho = top > -std::numeric_limits<C>::infinity() ? top : C(0);
        rho_[t - t0_] = rho;
        for (index_t i = 0; i < count; ++i) {
          const auto empty = load(at + i * pair) == zero;
          const vec<C> g = load(at + i * pair);
          const vec<C> x = xsimd::select(empty, zero, times_pow2<C>(g, e[i] - vec<C>(rho)));
          store(at + i * pair, x);
          store(at + i * pair + L, -(x * load(at + i * pair + L)));
        }
      }
    }
    for (C* x = queries_ + (t1_ - t0_) * G * pair; x < queries_ + plan_->block * G * pair; x += L) store(x, zero);
  }

  /// products[t][x] for the strips of E queries. What is packed next comes to the second-level cache on the way: a
  /// row of it is a few cache lines, which the hardware does not foresee.
  void multiply(const inputs* next) {
    const backward_problem& p = *in_->p;
    const index_t first = s0_ > 0 ? (s0_ < p.Tk ? s0_ : p.Tk) : 0;
    const index_t last = s0_ + plan_->keys < p.Tk ? (s0_ + plan_->keys > first ? s0_ + plan_->keys : first) : p.Tk;
    const index_t rows = t1_ - t0_;
    const index_t keys = last - first;
    // Several strips share the keys that pass by, which come from the second-level cache.
    constexpr index_t strip = tuning<C>::band_strips * E;
    const index_t turns = (plan_->reach + strip - E) / K;
    const index_t steps = (rows + strip - 1) / strip * turns;
    for (index_t r0 = 0, step = 0; r0 < rows; r0 += strip) {
      const index_t r1 = r0 + strip < rows ? r0 + strip : rows;
      for (index_t turn = 0; turn < turns; ++turn, ++step) {
        if (next != nullptr) {
          next->ask_queries(t0_ + rows * step / steps, t0_ + rows * (step + 1) / steps);
          next->ask_keys(first + keys * step / steps, first + keys * (step + 1) / steps);
        }
        for (index_t r = r0; r < r1; r += E) {
          const index_t x = (turn - (r - r0) / K) * K;
          const index_t s = s0_ + r + x;
          // Keys that do not exist are hidden pairs, whose products are not looked at.
          if (x < 0 || x >= plan_->reach || s + K <= 0 || s >= p.Tk) continue;
          multiply_tile(count_, queries_ + r * G * pair, keys_ + (r + x) * G * pair, products_ + r * plan_->cells + x);
        }
      }
    }
  }

  [[gnu::noinline]] void multiply_tile(index_t depth, const C* q, const C* k, C* out) const {
    vec<C> sum[E * K];
#pragma GCC unroll 16
    for (index_t x = 0; x < E * K; ++x) sum[x] = vec<C>(C(0));
    for (index_t i = 0; i < depth; ++i, q += pair, k += pair) {
      vec<C> g[E], go[E];
#pragma GCC unroll 4
      for (index_t r = 0; r < E; ++r) {
        g[r] = load(q + r * G * pair);
        go[r] = load(q + r * G * pair + L);
        keep_in_register<C>(g[r]);
        keep_in_register<C>(go[r]);
      }
#pragma GCC unroll 4
      for (index_t s = 0; s < K; ++s) {
        vec<C> value = load(k + s * G * pair);
        vec<C> weight = load(k + s * G * pair + L);
        keep_in_register<C>(value);
        keep_in_register<C>(weight);
#pragma GCC unroll 4
        for (index_t r = 0; r < E; ++r) {
          sum[r * K + s] = mul_add(g[r], value, sum[r * K + s]);
        }
#pragma GCC unroll 4
        for (index_t r = 0; r < E; ++r) sum[r * K + s] = mul_add(go[r], weight, sum[r * K + s]);
      }
    }
    const index_t cells = plan_->cells;
    C flat[E * K];
#pragma GCC unroll 8
    for (index_t x = 0; x < E * K; x += L) store(flat + x, lane_sums<C>(sum + x));
#pragma GCC unroll 4
    for (index_t r = 0; r < E; ++r) std::memcpy(out + r * cells, flat + r * K, K * sizeof(C));
  }

  /// sums[t][j] += exp(w) 2^rho products[t][j]; what is not proven comes from the definition.
  [[gnu::flatten]] void add_weighted(index_t n0, index_t n1) {
    const vec<C> zero(C(0)), one(C(1)), largest(exp_constants<C>::largest);
    const vec<C> most(sizeof(C) == 4 ? C(40) : C(400)), back(plan_->scale.back), lower(plan_->scale.lower);
    for (index_t r = 0; r < t1_ - t0_; ++r) {
      const vec<C> rho(rho_[r]);
      const C* const c = products_ + r * plan_->cells + r % E;
      for (index_t j = r * plan_->line; j < (r + 1) * plan_->line; j += L) {
        const vec<C> mantissa = load(mantissa_ + j);
        const vec<C> exponent = load(exponent_ + j) + rho;
        const auto hidden = mantissa == zero;
        const vec<C> dw = times_pow2<C>(mantissa * load(c + (j - r * plan_->line)), exponent) * back * lower;
        const auto proven = hidden || ((exponent <= most) && (xsimd::abs(dw) <= largest));
        if (xsimd::all(proven)) {
          store(sums_ + j, load(sums_ + j) + xsimd::select(hidden, zero, dw));
        } else {
          C flag[L], add[L];
          store(flag, xsimd::select(proven, one, zero));
          store(add, xsimd::select(hidden, zero, dw));
          for (index_t l = 0; l < L; ++l)
            if (flag[l] == C(0)) add[l] = exact(n0, n1, t0_ + r, j - r * plan_->line + l);
          store(sums_ + j, load(sums_ + j) + load(add));
        }
      }
    }
  }

  [[gnu::noinline]] C exact(index_t n0, index_t n1, index_t t, index_t j) const {
    const index_t s = t - plan_->before + j;
    C w;
    weights_->row(t, s, s + 1, &w);
    return exact_pair<C>(*in_, *columns_, n0, n1, t, s, w);
  }

  static constexpr index_t ahead = 8;
  static constexpr index_t band_chunk = column_chunk;

  const gradient_inputs* in_;
  const band_plan<C>* plan_;
  const pair_weights<C>* weights_;
  const gradient_columns<C>* columns_;
  index_t t0_, t1_, s0_;
  C *queries_, *keys_, *products_, *mantissa_, *exponent_, *sums_, *rows_;
  index_t count_ = 0;
  lane_tile<C> tiles_[G];
  C kappa_[G * L];
  C rho_[tuning<C>::band_block];
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
