// SPDX-License-Identifier: Apache-2.0
/// @file window/bias_gradient.hpp  dw[t,s] = sum_{b, c in head} a[t,s,c] g[t,c] (v[s,c] - o[t,c]) for narrow windows.
///
/// The fold that makes dk and dv has both factors at hand: the queries' columns [X g | X g o] with X = exp(-lse), and
/// exp(k) of a panel's keys. They are multiplied there, with channels as lanes, so nothing is read, packed or
/// transposed a second time; an accumulator a pair, whose lanes are added up in the end. Lane tiles are summed in
/// chains, each by one thread and in order; a row of dw is exp(w) times the sum of all chains.
#pragma once

#include <cstring>

#include "../bias_gradient/store.hpp"
#include "../math/exp_weight.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The sums of one call: tiles of E queries by K keys, E K numbers each, those of a query block of E queries side by
/// side. Their places depend on the shape alone, so no result depends on threads.
template <class C>
struct product_plan {
  static constexpr index_t L = lanes<C>;
  static constexpr index_t E = tuning<C>::band_rows;
  static constexpr index_t K = tuning<C>::band_keys;
  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t N = tuning<C>::NR;
  static constexpr index_t cell = E * K;
  static_assert(cell % L == 0 && fold_plan<C>::pair_step * M % K == 0);

  index_t before = 0, after = 0;        ///< row t has a bias for the keys [t - before, t + after]
  index_t query_blocks = 0, tiles = 0;  ///< tiles of a query block, at most
  index_t partials = 0, partial_size = 0;
  index_t line = 0;  ///< pairs of a row in whole vectors
  gradient_scale<C> scale;
  per_thread<kept_keys<C>> keys;  ///< of every lane tile of a slot
  per_thread<C> columns;          ///< where those lie
  per_thread<C> sums;
  per_thread<C> exponents;  ///< of every key, what its weights were divided by
  per_thread<C> rows;

  /// Windows for which it is faster, and biases whose gradient is stored pair by pair.
  static bool serves(const backward_problem& p) {
    const bool stored = p.dbias.kind == bias_kind::dense || p.dbias.kind == bias_kind::banded;
    const bool batched = p.bias.batch > 1 && p.B > 1;
    const bool mask_per_batch = !batched && p.B > 1 && p.pair_mask() && p.mask_sb != 0;
    const bool any = p.B > 0 && p.d > 0 && p.Tq > 0 && p.Tk > 0;
    return any && stored && !mask_per_batch && key_geometry(p).bounded &&
           p.win.before + p.win.after + 1 <= tuning<C>::band_widest;
  }

  /// Whether the sums of one team keep within `room`, whatever threads there are: results must not depend on them.
  /// `fold_for` plans the fold for a thread.
  template <class Fold>
  static bool fits(const backward_problem& p, std::size_t room, const Fold& fold_for) {
    product_plan sums(p);
    sums.partials = 4 * tuning<C>::partials;
    if (sums.team_bytes() <= room) return true;
    sums.partials = fold_for().partials;
    return sums.team_bytes() <= room;
  }

  product_plan(const backward_problem& p, const fold_plan<C>& fold, scratch& memory) : product_plan(p) {
    partials = fold.partials;
    const int teams = fold.by_batch_item ? fold.threads : 1;
    const auto lay_out = [&](scratch& from) {
      keys = from.take_each<kept_keys<C>>(fold.group, fold.threads);
      columns = from.take_each<C>(fold.group * column_size, fold.threads);
      sums = from.take_each<C>(partials * partial_size, teams);
      exponents = from.take_each<C>(p.Tk + L, teams);
      rows = from.take_each<C>(row_size(), fold.threads);
    };
    memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  }

  static constexpr index_t column_size = fold_plan<C>::pair_step * M * N;
  /// A query block's sums, and weights and gradients of a row.
  index_t row_size() const { return E * tiles * K + L + 2 * line; }

  static index_t floor_of(index_t n, index_t by) { return n >= 0 ? n / by : -((by - 1 - n) / by); }
  /// The first tile of a query block, counted from key 0; it may lie before it.
  index_t first_tile(index_t query_block) const { return floor_of(query_block * E - before, K); }

 private:
  explicit product_plan(const backward_problem& p) {
    before = p.win.before;
    after = p.causal && p.win.after > p.first_query ? p.first_query : p.win.after;
    const index_t width = before + after + 1 > 0 ? before + after + 1 : 0;
    query_blocks = ceil_div(p.Tq, E);
    tiles = (width + E + K - 2) / K + 1;
    partial_size = query_blocks * tiles * cell;
    line = round_up(width, L);
  }

  std::size_t team_bytes() const { return static_cast<std::size_t>(partials * partial_size) * sizeof(C); }
};

/// One batch item's products. Exact for every finite input: what is not proven comes from the definition.
template <class C>
class window_products final : public pair_products<C> {
 public:
  using plan_type = product_plan<C>;
  static constexpr index_t L = lanes<C>;
  static constexpr index_t E = plan_type::E;
  static constexpr index_t K = plan_type::K;
  static constexpr index_t M = plan_type::M;
  static constexpr index_t N = plan_type::N;

  window_products(const gradient_inputs& in, const plan_type& plan, const fold_plan<C>& fold,
                  const bias_batch<C>& batch_items, const typename bias_batch<C>::batch_item& batch_item,
                  const bias_gradient_job<C>& bias, int thread)
      : in_(&in),
        plan_(&plan),
        fold_(&fold),
        batch_items_(&batch_items),
        bias_(&bias),
        batch_item_(batch_item),
        streamed_(bias.streams()),
        team_(fold.by_batch_item ? thread : 0),
        sums_(plan.sums.of(team_)),
        exponents_(plan.exponents.of(team_)) {}

  void begin(const fold_item& item, const column_scale<C>* cs) override {
    const gradient_scale<C>& all = plan_->scale;
    const C common = scale_exponent<C>(all.by) + scale_exponent<C>(all.lift);
    for (index_t i = 0; i < item.count; ++i) {
      kept_keys<C>& keys = keys_of(item, i);
      C exponent[L];
      for (index_t l = 0; l < L; ++l)
        exponent[l] = scale_exponent<C>(cs[i].inverse_scale[l]) + scale_exponent<C>(cs[i].unlift[l]) + common;
      const vec<C> scale = load(exponent), most(exp_constants<C>::bias);
      store(keys.scale, xsimd::select(scale <= most, pow2<C>(scale), vec<C>(std::numeric_limits<C>::quiet_NaN())));
    }
  }

  kept_keys<C>* keys(const fold_item& item, index_t i, index_t panel) override {
    kept_keys<C>& keys = keys_of(item, i);
    const index_t place = panel % fold_plan<C>::pair_step;
    keys.to = plan_->columns.of(item.slot) + i * plan_type::column_size + place * M * N;
    return &keys;
  }

  void multiply(const fold_item& item, const window_columns<C>& columns, index_t panel) override {
    const problem& p = *in_->p;
    const index_t s0 = panel / fold_plan<C>::pair_step * fold_plan<C>::pair_step * M;
    const index_t s1 = fold_->cut.end(panel);
    keep_exponents(item, panel, s0);
    blank_keys(item, s1 - s0);
    const index_t t0 = s0 - plan_->after > 0 ? s0 - plan_->after : 0;
    const index_t t1 = s1 + plan_->before < p.Tq ? s1 + plan_->before : p.Tq;
    C* const sums = sums_ + item.partial * plan_->partial_size;
    for (index_t i0 = 0; i0 < item.count; i0 += tuning<C>::band_group) {
      const index_t depth = item.count - i0 < tuning<C>::band_group ? item.count - i0 : tuning<C>::band_group;
      const C* const keys = plan_->columns.of(item.slot) + i0 * plan_type::column_size;
      const bool first = item.begins && i0 == 0;
      for (index_t query_block = t0 / E; query_block * E < t1; ++query_block) {
        const index_t from = plan_->first_tile(query_block);
        // Of the query block's tiles those whose keys are these panels'.
        const index_t j0 = s0 / K > from ? s0 / K : from;
        const index_t end = plan_type::floor_of(query_block * E + E - 1 + plan_->after, K) + 1;
        const index_t j1 = min_of(ceil_div(s1, K), end);
        C* out = sums + (query_block * plan_->tiles + j0 - from) * plan_type::cell;
        const C* const queries = columns.at(i0, query_block * E);
        for (index_t j = j0; j < j1; ++j, out += plan_type::cell) {
          // The next query block's sums, which lie apart: 3 to 4% of the call on 8 x 1024 x 512.
          if (!first) prefetch_to_write(out, plan_->tiles * plan_type::cell);
          multiply_tile(depth, queries, fold_->column_size, keys + (j * K - s0) * N, first, out);
        }
      }
    }
  }

  /// Writes dw, after all items.
  void rows(const pair_weights<C>& weights) const {
    const problem& p = *in_->p;
    constexpr index_t together = 8;  // query blocks an item
    const auto body = [&](index_t item, int own) {
      const index_t end = (item + 1) * together < plan_->query_blocks ? (item + 1) * together : plan_->query_blocks;
      C* const sums = plan_->rows.of(own);
      C* const w = sums + E * plan_->tiles * K + L;
      C* const dw = w + plan_->line;
      for (index_t query_block = item * together; query_block < end; ++query_block) {
        const index_t origin = plan_->first_tile(query_block) * K;
        add_partials(query_block, sums);
        for (index_t t = query_block * E; t < query_block * E + E && t < p.Tq; ++t) {
          const index_t first = t - plan_->before > 0 ? t - plan_->before : 0;
          const index_t last = t + plan_->after + 1 < p.Tk ? t + plan_->after + 1 : p.Tk;
          if (first >= last) {
            bias_->write_row(batch_item_.b, batch_item_.h, t, 0, 0, dw, streamed_);
            continue;
          }
          weights.row(t, first, last, w);
          weigh(last - first, sums + (t - query_block * E) * plan_->tiles * K + first - origin, exponents_ + first, w,
                dw, [&](index_t x) { return apart(t, first + x, w[x]); });
          bias_->write_row(batch_item_.b, batch_item_.h, t, first, last, dw, streamed_);
        }
      }
      fence_stores();
    };
    const index_t items = ceil_div(plan_->query_blocks, together);
    if (fold_->by_batch_item) {
      for (index_t item = 0; item < items; ++item) body(item, team_);
    } else {
      parallel_for(items, fold_->threads, body);
    }
  }

 private:
  kept_keys<C>& keys_of(const fold_item& item, index_t i) const { return plan_->keys.of(item.slot)[i]; }

  /// Once a batch item: the panels' weights are the same for all lane tiles.
  void keep_exponents(const fold_item& item, index_t panel, index_t s0) {
    if (item.partial > 0 || !item.begins) return;
    for (index_t s = s0; s < fold_->cut.end(panel); ++s)
      exponents_[s] = fold_->scales_of(team_)[s / M - item.block].exponent[s % M];
  }

  /// Keys past the last one, as far as a tile reaches.
  void blank_keys(const fold_item& item, index_t count) const {
    const vec<C> zero(C(0));
    for (index_t i = 0; count % K != 0 && i < item.count; ++i) {
      C* const at = plan_->columns.of(item.slot) + i * plan_type::column_size;
      for (index_t x = count * N; x < (count + K - count % K) * N; x += L) store(at + x, zero);
    }
  }

  /// out[r K + s] = or += the products of E queries and K keys, over `depth` lane tiles.
  [[gnu::noinline]] static void multiply_tile(index_t depth, const C* q, index_t q_step, const C* k, bool first,
                                              C* out) {
    vec<C> sum[E * K];
    AFT_UNROLL(16)
    for (index_t x = 0; x < E * K; ++x) sum[x] = vec<C>(C(0));
    for (index_t i = 0; i < depth; ++i, q += q_step, k += plan_type::column_size) {
      vec<C> g[E], go[E];
      AFT_UNROLL(4)
      for (index_t r = 0; r < E; ++r) {
        g[r] = load(q + r * N);
        go[r] = load(q + r * N + L);
        keep_in_register<C>(g[r]);
        keep_in_register<C>(go[r]);
      }
      AFT_UNROLL(4)
      for (index_t s = 0; s < K; ++s) {
        vec<C> value = load(k + s * N);
        vec<C> weight = load(k + s * N + L);
        keep_in_register<C>(value);
        keep_in_register<C>(weight);
        AFT_UNROLL(4)
        for (index_t r = 0; r < E; ++r) sum[r * K + s] = mul_add(g[r], value, sum[r * K + s]);
        AFT_UNROLL(4)
        for (index_t r = 0; r < E; ++r) sum[r * K + s] = mul_add(go[r], weight, sum[r * K + s]);
      }
    }
    AFT_UNROLL(8)
    for (index_t x = 0; x < E * K; x += L) {
      const vec<C> lanes_added = lane_sums<C>(sum + x);
      store(out + x, first ? lanes_added : load(out + x) + lanes_added);
    }
  }

  /// The query block's products of all chains, row by row. Tiles without a key are left out: nothing was summed there.
  void add_partials(index_t query_block, C* sums) const {
    const index_t from = plan_->first_tile(query_block);
    const index_t keys = ceil_div(in_->p->Tk, K);
    const index_t end = plan_type::floor_of(query_block * E + E - 1 + plan_->after, K) + 1;
    for (index_t j = max_of(from, 0); j < min_of(end, keys); ++j) {
      const C* const at = sums_ + (query_block * plan_->tiles + j - from) * plan_type::cell;
      C cell[plan_type::cell];
      AFT_UNROLL(8)
      for (index_t x = 0; x < plan_type::cell; x += L) {
        vec<C> sum = load(at + x);
        for (index_t partial = 1; partial < plan_->partials; ++partial)
          sum = sum + load(at + partial * plan_->partial_size + x);
        store(cell + x, sum);
      }
      for (index_t r = 0; r < E; ++r)
        std::memcpy(sums + (r * plan_->tiles + j - from) * K, cell + r * K, K * sizeof(C));
    }
  }

  /// dw[x] = exp(w[x]) 2^-exponents[x] sums[x] scaled back, for `count` keys. The sums have lost terms below 2^-125,
  /// which what multiplies them, at most 1.42, leaves below 2^-60 max |g|.
  template <class Apart>
  [[gnu::flatten]] void weigh(index_t count, const C* sums, const C* exponents, C* w, C* dw, const Apart& apart) const {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const vec<C> zero(C(0)), one(C(1)), largest(exp_constants<C>::largest), range(exp_constants<C>::range);
    const vec<C> back(plan_->scale.back), lower(plan_->scale.lower);
    for (index_t x = count; x < round_up(count, L); ++x) w[x] = -inf;
    for (index_t x = 0; x < count; x += L) {
      const vec<C> weight = load(w + x);
      const auto hidden = weight == vec<C>(-inf);
      const auto within = (xsimd::abs)(weight) <= range;
      const split_exp<C> e = exp_weight<C>(xsimd::select(within, weight, zero));
      const vec<C> exponent = xsimd::select(within, e.exponent - load(exponents + x), zero);
      const vec<C> sum = times_pow2<C>(e.mantissa * load(sums + x), exponent) * back * lower;
      const auto proven = hidden || (within && ((xsimd::abs)(sum) <= largest));
      store(dw + x, xsimd::select(hidden, zero, sum));
      if (xsimd::all(proven)) continue;
      C flag[L];
      store(flag, xsimd::select(proven, one, zero));
      for (index_t l = 0; l < L; ++l)
        if (flag[l] == C(0)) dw[x + l] = apart(x + l);
    }
  }

  /// One pair, chain by chain, where not all are proven together.
  [[gnu::noinline]] C apart(index_t t, index_t s, C weight) const {
    const index_t place =
        ((t / E) * plan_->tiles + s / K - plan_->first_tile(t / E)) * plan_type::cell + t % E * K + s % K;
    const bool within = weight >= -exp_constants<C>::range && weight <= exp_constants<C>::range;
    const split_exp<C> e = exp_weight<C>(vec<C>(within ? weight : C(0)));
    const index_t tiles = batch_items_->tiles();
    C total = C(0), own[L];
    for (index_t partial = 0; partial < plan_->partials; ++partial) {
      const vec<C> sum(sums_[partial * plan_->partial_size + place]);
      store(own, times_pow2<C>(e.mantissa * sum, e.exponent - vec<C>(exponents_[s])) * vec<C>(plan_->scale.back) *
                     vec<C>(plan_->scale.lower));
      const C size = own[0] < C(0) ? -own[0] : own[0];
      if (within && size <= exp_constants<C>::largest) {
        total += own[0];
        continue;
      }
      const index_t end = fold_->first_group(partial + 1, tiles) * fold_->group;
      for (index_t i = fold_->first_group(partial, tiles) * fold_->group; i < end && i < tiles; ++i)
        total += exact_tile<C>(*in_, batch_items_->tile(batch_item_, i), t, s, weight);
    }
    return total;
  }

  const gradient_inputs* in_;
  const plan_type* plan_;
  const fold_plan<C>* fold_;
  const bias_batch<C>* batch_items_;
  const bias_gradient_job<C>* bias_;
  typename bias_batch<C>::batch_item batch_item_;
  bool streamed_;
  int team_;  ///< whose buffers these are: the thread's where batch items run side by side
  C *sums_, *exponents_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
