// SPDX-License-Identifier: Apache-2.0
/// @file stencil_tied.hpp  Channels that share key and filter have one denominator: AFT-conv with keys tied to heads.
#pragma once

#include <numeric>

#include "stencil_store.hpp"
#include "stencil_worker.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Classes of consecutive channels with one key channel and one head.
template <class C>
struct channel_classes {
  index_t size = 1;  ///< channels of a class
  index_t count = 0;

  explicit channel_classes(const problem& p)
      : size(std::gcd(p.d / p.bias.heads, p.d / p.hk)), count(p.d / size), batches_(p.B), channels_(p.d) {}

  /// With denominators apart, numerators of two batch elements fill the two vectors of the stencil.
  bool pays() const { return size >= tuning_stencil<C>::tied_class && batches_ > 1 && channels_ >= lanes<C>; }
  index_t tiles() const { return (count + lanes<C> - 1) / lanes<C>; }
  /// Lanes are classes, each by its first channel.
  lane_tile<C> tile(index_t b, index_t index) const {
    lane_tile<C> t;
    const index_t first = index * lanes<C>;
    t.count = count - first < lanes<C> ? count - first : lanes<C>;
    for (index_t l = 0; l < t.count; ++l) {
      t.b[l] = b;
      t.c[l] = (first + l) * size;
    }
    return t;
  }

 private:
  index_t batches_;
  index_t channels_;
};

/// Spreads numbers of classes over the lanes of their channels.
template <class C>
struct lane_spread {
  static constexpr index_t L = lanes<C>;
  static constexpr index_t most_runs = 4;
  index_t at[L] = {};           ///< where a lane's class lies
  index_t run[most_runs] = {};  ///< first lanes of runs of equal classes
  index_t runs = 0;
  C lane[L];

  /// Arrays of class tiles lie `step` elements apart; `first` is the class of element 0.
  lane_spread(const lane_tile<C>& tile, index_t size, index_t first, index_t step) {
    for (index_t l = 0; l < L; ++l) {
      const index_t c = tile.c[l < tile.count ? l : tile.count - 1] / size - first;
      at[l] = c / L * step + c % L;
      lane[l] = static_cast<C>(l);
      if (l > 0 && at[l] == at[l - 1]) continue;
      if (runs < most_runs) run[runs] = l;
      ++runs;
    }
  }
  vec<C> operator()(const C* p) const {
    if (runs > most_runs) {
      C all[L];
      for (index_t l = 0; l < L; ++l) all[l] = p[at[l]];
      return load(all);
    }
    vec<C> result(p[at[0]]);
    const vec<C> lanes_of(load(lane));
    for (index_t i = 1; i < runs; ++i)
      result = xsimd::select(lanes_of < vec<C>(static_cast<C>(run[i])), result, vec<C>(p[at[run[i]]]));
    return result;
  }
};

/// What a thread holds besides: of every class the weights of keys and the denominators, [class tile][t][batch][lane].
template <class C>
struct tied_worker {
  C* keys = nullptr;
  C* dens = nullptr;
  column_scales<C>* scales = nullptr;  ///< [class tile][batch]
  C* sums = nullptr;

  void take(const stencil_shape& shape, index_t class_tiles, scratch& memory) {
    const index_t size = class_tiles * shape.positions() * 2 * lanes<C>;
    keys = memory.take<C>(size);
    dens = memory.take<C>(size);
    scales = memory.take<column_scales<C>>(class_tiles * 2);
    sums = memory.take<C>(class_tiles > 0 ? query_block<C>::most * 2 * lanes<C> : 0);
  }
};

/// Two batch elements b and b + 1 at a time.
template <class C>
struct tied_fold {
  static constexpr index_t L = lanes<C>;
  const problem& p;
  const stencil_shape& shape;
  const lane_plan<C>& plan;
  const stencil_table<C>* tables;
  const channel_classes<C>& classes;
  const stencil_table<C>* class_tables;
  query_results wanted;

  /// Lane tiles [first, last), with the denominators of their classes only.
  void run(const stencil_worker<C>& worker, const tied_worker<C>& tied, index_t b, index_t first, index_t last) const {
    const index_t step = p.Tk * 2 * L;
    const index_t class_first = first * L / classes.size / L;
    const index_t end = last * L < p.d ? last * L : p.d;
    const index_t class_last = ((end - 1) / classes.size) / L + 1;
    box_complement<C> rest(shape, worker.rest);
    for (index_t i = class_first; i < class_last; ++i) {
      C* const keys = tied.keys + (i - class_first) * step;
      C* const dens = tied.dens + (i - class_first) * step;
      for (index_t x = 0; x < 2; ++x)
        stage_keys(classes.tile(b + x, i), class_tables[i], keys + x * L, tied.scales[(i - class_first) * 2 + x]);
      fold_grid<C>(shape, class_tables[i].weights, class_tables[i].outside, keys, rest, tied.sums, query_block<C>::most,
                   [&](index_t t0, index_t t1) {
                     for (index_t at = 0; at < (t1 - t0) * 2 * L; at += L)
                       store(dens + t0 * 2 * L + at, load(tied.sums + at));
                   });
    }
    for (index_t i = first; i < last; ++i) values(worker, tied, b, i, i > first, i + 1 < last, class_first * L, rest);
    fence_stores();
  }

 private:
  /// keys[s * 2 L + lane] = exp(k) 2^-exponent, -0 where hidden.
  [[gnu::flatten]] void stage_keys(const lane_tile<C>& tile, const stencil_table<C>& table, C* keys,
                                   column_scales<C>& cs) const {
    constexpr index_t block = 32;
    constexpr C inf = std::numeric_limits<C>::infinity();
    const lane_rows<C> field_k(p.k, p.grid, tile, p.d / p.hk);
    C k[block * L];
    vec<C> top(-inf), gaps(C(0));
    for (index_t s0 = 0; s0 < p.Tk; s0 += block) {
      const index_t s1 = s0 + block < p.Tk ? s0 + block : p.Tk;
      field_k.read(s0, s1, k, -inf);
      hide_keys(p, tile, s0, s1, k);
      for (index_t s = s0; s < s1; ++s) {
        const vec<C> key = load(k + (s - s0) * L);
        top = max_ignoring_nan<C>(top, key);
        gaps = xsimd::select(key == vec<C>(-inf), vec<C>(C(1)), gaps);
        store(keys + s * 2 * L, key);
      }
    }
    set_key_scales<C>(top, table, cs);
    store(cs.gaps, gaps);
    const vec<C> exponent = load(cs.exponent);
    for (index_t s = 0; s < p.Tk; ++s) {
      const vec<C> key = load(keys + s * 2 * L);
      store(keys + s * 2 * L, staged_weight<C>(key, exponent));
    }
    find_first_keys<C>(keys, p.Tk, cs);
  }

  /// P[s * 2 L + lane] = weight * v, and the scales of the tile's own lanes.
  template <bool Gaps>
  [[gnu::flatten]] void stage_values(const lane_tile<C>& tile, const lane_spread<C>& spread, const C* weights, C* P,
                                     column_scales<C>& cs) const {
    const vec<C> zero(C(0)), one(C(1));
    magnitudes<C> sizes;
    lane_rows<C>(p.v, p.grid, tile, 1).read(0, p.Tk, P, C(0), 2 * L);
    const auto seen = [&](const vec<C>& weight) { return xsimd::copysign(one, weight) > zero; };
    for (index_t s = 0; s < p.Tk; ++s) {
      const vec<C> value = load(P + s * 2 * L);
      sizes.add(value, Gaps ? seen(spread(weights + s * 2 * L)) : zero < one);
    }
    set_value_scales<C>(sizes.high, sizes.low, cs);
    const vec<C> by = load(cs.scale);
    for (index_t s = 0; s < p.Tk; ++s) {
      const vec<C> weight = spread(weights + s * 2 * L);
      const vec<C> product = weight * (load(P + s * 2 * L) * by);
      store(P + s * 2 * L, Gaps ? xsimd::select(seen(weight), product, zero) : product);
    }
  }

  void values(const stencil_worker<C>& worker, const tied_worker<C>& tied, index_t b, index_t i, bool follows,
              bool leads, index_t class0, box_complement<C>& rest) const {
    const index_t step = p.Tk * 2 * L;
    const lane_tile<C> tiles[2] = {plan.tile(b, i), plan.tile(b + 1, i)};
    const lane_spread<C> spread(tiles[0], classes.size, class0, step);
    const query_fields<C> fields[2] = {{p, tiles[0]}, {p, tiles[1]}};
    const index_t after = leads ? i + 1 : i;
    const query_fields<C> next[2] = {{p, plan.tile(b, after)}, {p, plan.tile(b + 1, after)}};
    column_scales<C> cs[2];
    for (index_t x = 0; x < 2; ++x) {
      bool gaps = false;
      for (index_t l = 0; l < L; ++l) {
        const column_scales<C>& of_class = tied.scales[spread.at[l] / step * 2 + x];
        const index_t from = spread.at[l] % L;
        cs[x].exponent[l] = of_class.exponent[from];
        cs[x].usable[l] = of_class.usable[from];
        cs[x].empty[l] = of_class.empty[from];
        cs[x].first[l] = of_class.first[from];
        gaps = gaps || of_class.gaps[from] != C(0);
      }
      if (gaps) {
        stage_values<true>(tiles[x], spread, tied.keys + x * L, worker.P + x * L, cs[x]);
      } else {
        stage_values<false>(tiles[x], spread, tied.keys + x * L, worker.P + x * L, cs[x]);
      }
      if (!follows) fields[x].touch_queries();
    }
    query_fold<C> folds[2] = {{p, shape, tables[i], tiles[0], cs[0], worker.P},
                              {p, shape, tables[i], tiles[1], cs[1], worker.P}};
    for (index_t x = 0; x < 2; ++x)
      for (index_t l = 0; l < L; ++l) folds[x].marks[l] = tied.keys + x * L + spread.at[l];
    query_block<C>& block = *worker.block;
    fold_grid<C>(shape, tables[i].weights, tables[i].outside, worker.P, rest, tied.sums, query_block<C>::most,
                 [&](index_t t0, index_t t1) {
                   for (index_t x = 0; x < 2; ++x) {
                     for (index_t t = t0; t < t1; ++t) {
                       const index_t at = (t - t0) * 2 * L;
                       store(block.sums + at, load(tied.sums + at + x * L));
                       store(block.sums + at + L, spread(tied.dens + t * 2 * L + x * L));
                     }
                     folds[x].finish(t0, t1, wanted, block);
                     fields[x].store_queries(t0, t1, block);
                     if (leads) next[x].prefetch(t0, t1);
                   }
                 });
  }
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
