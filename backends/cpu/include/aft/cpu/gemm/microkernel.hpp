// SPDX-License-Identifier: Apache-2.0
/// @file gemm/microkernel.hpp  The register tile: rows x two vectors of C += A P.
#pragma once

#include <limits>
#include <utility>

#include "../simd/bf16_dot.hpp"
#include "../simd/lane_products.hpp"
#include "geometry.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Lines that a tile asks for on its way, one a step: `length` of the first row of them, then as many of the next. In a
/// burst they would wait for each other, a tenth of a window's time.
template <class C>
struct prefetched_lines {
  static constexpr index_t most = 4;
  const C* first[most];
  index_t step[most];
  index_t length;

  /// The weights of another tile as deep as this one.
  static prefetched_lines of_weights(const C* a) {
    return {{a, a, a, a}, {tuning<C>::MR}, (std::numeric_limits<index_t>::max)()};
  }
  /// As many lines from p on as the tile has steps.
  static prefetched_lines from(const C* p) { return {{p, p, p, p}, {line}, (std::numeric_limits<index_t>::max)()}; }
  static constexpr index_t line = 64 / static_cast<index_t>(sizeof(C));
};

/// The end of the run that begins at `step` of a tile; `last` is where the steps that all of its rows take end.
template <class C>
constexpr index_t run_end(index_t step, index_t last) {
  const index_t next = step + tuning<C>::run;
  return next + tuning<C>::run / 2 <= last ? next : last;
}

/// c[r][0..1] (+)= sum_s a[s][r] p[s][0..1] for r < M. a has tuning::rows entries a step, p and c two vectors a row;
/// `paired`: each entry of a and p is a pair of bfloat16 and s counts pairs.
/// Fused chains in the order of s, one for each run of tuning::run steps: the bits do not depend on M. `prefetch_into`
/// is brought to the second-level cache.
template <class C, index_t M, bool paired>
class gemm_tile {
 public:
  /// Steps at a band edge.
  static constexpr index_t begin_steps = [] {
    index_t last = 0;
    for (index_t i = 0; i < tuning<C>::edge_groups && tuning<C>::edge_group(i) < M; ++i)
      last = tuning<C>::edge_group(i);
    return last;
  }();
  static constexpr bool may_end = !paired && M >= tuning<C>::exact_rows;
  static constexpr index_t end_steps = M > tuning<C>::edge_group(1) ? M - tuning<C>::edge_group(1) : 0;

  static void run(index_t depth, const C* a, const C* p, C* c, bool add, const prefetched_lines<C>& prefetch_into,
                  tile_edges edges) {
    sums all;
    AFT_UNROLL(14)
    for (index_t r = 0; r < M; ++r) all.left[r] = all.right[r] = vec<C>(C(0));
    C runs[M * width];  // the sum of those that are done; of all keys one after the other it would round more
    bool any = false;
    index_t s = 0;
    if (!paired && edges.begin) s = begin(a, p, all, edge_groups());
    const index_t last = may_end && edges.end ? depth - end_steps : depth;
    index_t joint = paired ? last : run_end<C>(0, last);
    for (index_t part = 0; s < last; ++part) {
      const C* line = prefetch_into.first[part];
      const index_t stop = last - s > prefetch_into.length ? s + prefetch_into.length : last;
      while (s < stop) {
        const index_t until = min_of(joint, stop);
        for (; s < until; ++s, line += prefetch_into.step[part]) {
          AFT_PREFETCH(line, 0, 2);
          multiply<0, M>(a + s * step, p + s * width, all);
        }
        if (paired || s < joint || s == last) continue;
        join(all, runs, any);
        store(all, runs);
        any = true;
        AFT_UNROLL(14)
        for (index_t r = 0; r < M; ++r) all.left[r] = all.right[r] = vec<C>(C(0));
        joint = run_end<C>(s, last);
      }
    }
    if constexpr (may_end) {
      if (edges.end) end(a + last * step, p + last * width, all, edge_groups());
    }
    join(all, runs, any);
    join(all, c, add);
    store(all, c);
  }

 private:
  static constexpr index_t step = tuning<C>::MR;
  static constexpr index_t width = tuning<C>::NR;
  struct sums {
    vec<C> left[M];
    vec<C> right[M];
  };
  /// all += from, if there is such.
  AFT_INLINE static void join(sums& all, const C* from, bool any) {
    if (!any) return;
    AFT_UNROLL(14)
    for (index_t r = 0; r < M; ++r) {
      all.left[r] = all.left[r] + load(from + r * width);
      all.right[r] = all.right[r] + load(from + r * width + lanes<C>);
    }
  }
  AFT_INLINE static void store(const sums& all, C* to) {
    AFT_UNROLL(14)  // else the accumulators go to the stack first
    for (index_t r = 0; r < M; ++r) {
      cpu_impl::store(to + r * width, all.left[r]);
      cpu_impl::store(to + r * width + lanes<C>, all.right[r]);
    }
  }

  /// All but the last of a full tile; those past M rows are empty.
  using edge_groups = std::make_integer_sequence<index_t, tuning<C>::edge_groups - 1>;

  static constexpr index_t edge(index_t edge_group) {
    const index_t row = tuning<C>::edge_group(edge_group);
    return row < M ? row : M;
  }

  /// Edge group i takes part from step edge(i) on.
  template <index_t... i>
  AFT_INLINE static index_t begin(const C* a, const C* p, sums& all, std::integer_sequence<index_t, i...>) {
    (multiply_steps<0, edge(i + 1), (edge(i + 1) < M ? edge(i + 1) - edge(i) : 0)>(a + edge(i) * step,
                                                                                   p + edge(i) * width, all),
     ...);
    return begin_steps;
  }
  /// And up to step edge(i + 1), counted from where the first one is done, less edge(1).
  template <index_t... i>
  AFT_INLINE static void end(const C* a, const C* p, sums& all, std::integer_sequence<index_t, i...>) {
    (multiply_steps<edge(i + 1), M, edge(i + 2) - edge(i + 1)>(a + (edge(i + 1) - edge(1)) * step,
                                                               p + (edge(i + 1) - edge(1)) * width, all),
     ...);
  }

  template <index_t first, index_t last, index_t count>
  AFT_INLINE static void multiply_steps(const C* a, const C* p, sums& all) {
    AFT_UNROLL(4)
    for (index_t s = 0; s < count; ++s) multiply<first, last>(a + s * step, p + s * width, all);
  }

  /// One step of rows [first, last).
  template <index_t first, index_t last>
  AFT_INLINE static void multiply(const C* a, const C* p, sums& all) {
    const vec<C> p0 = load(p);
    const vec<C> p1 = load(p + lanes<C>);
    if constexpr (has_lane_products<C>) {
      static_assert(step % lanes<C> == 0, "rows of a step are whole vectors");
      constexpr index_t begins = first / lanes<C>, ends = ceil_div(last, lanes<C>);
      multiply_vectors<first, last, begins>(a, p0, p1, all, std::make_integer_sequence<index_t, ends - begins>{});
    } else {
      AFT_UNROLL(14)
      for (index_t r = first; r < last; ++r) {
        const vec<C> weight(a[r]);
        if constexpr (paired) {
          all.left[r] = add_pairs(weight, p0, all.left[r]);
          all.right[r] = add_pairs(weight, p1, all.right[r]);
        } else {
          all.left[r] = mul_add(weight, p0, all.left[r]);
          all.right[r] = mul_add(weight, p1, all.right[r]);
        }
      }
    }
  }

  /// The same, by vectors of weights.
  template <index_t first, index_t last, index_t begins, index_t... v>
  AFT_INLINE static void multiply_vectors(const C* a, const vec<C>& p0, const vec<C>& p1, sums& all,
                                          std::integer_sequence<index_t, v...>) {
    (multiply_lanes<first, last, (begins + v) * lanes<C>>(load(a + (begins + v) * lanes<C>), p0, p1, all,
                                                          std::make_integer_sequence<index_t, lanes<C>>{}),
     ...);
  }
  template <index_t first, index_t last, index_t row, index_t... lane>
  AFT_INLINE static void multiply_lanes(const vec<C>& weights, const vec<C>& p0, const vec<C>& p1, sums& all,
                                        std::integer_sequence<index_t, lane...>) {
    (multiply_row<first, last, row + lane, lane>(weights, p0, p1, all), ...);
  }
  template <index_t first, index_t last, index_t row, index_t lane>
  AFT_INLINE static void multiply_row(const vec<C>& weights, const vec<C>& p0, const vec<C>& p1, sums& all) {
    if constexpr (first <= row && row < last) {
      if constexpr (paired) {
        all.left[row] = add_pairs_lane<lane>(weights, p0, all.left[row]);
        all.right[row] = add_pairs_lane<lane>(weights, p1, all.right[row]);
      } else {
        all.left[row] = mul_add_lane<lane>(weights, p0, all.left[row]);
        all.right[row] = mul_add_lane<lane>(weights, p1, all.right[row]);
      }
    }
  }
};

/// The tile of `rows` rows, by the smallest kernel that covers them. Panels are cut evenly, so heights near the full
/// one are the common ones; lower ones occur in short sequences and beside windows only.
template <class C, bool paired, index_t M>
inline void gemm_rows(index_t rows, index_t depth, const C* a, const C* p, C* c, bool add,
                      const prefetched_lines<C>& prefetch_into, tile_edges edges) {
  constexpr index_t most = tuning<C>::MR;
  constexpr index_t smaller = M - (M > tuning<C>::exact_rows ? 1 : (M > most / 2 ? 2 : 3));
  if constexpr (smaller > 0) {
    if (rows <= smaller) return gemm_rows<C, paired, smaller>(rows, depth, a, p, c, add, prefetch_into, edges);
  }
  gemm_tile<C, M, paired>::run(depth, a, p, c, add, prefetch_into, edges);
}

/// gemm_rows for any height, once in a program.
template <class C, bool paired = false>
AFT_COMPILE_ONCE [[gnu::flatten]] inline void gemm_panel(index_t rows, index_t depth, const C* a, const C* p, C* c,
                                                         bool add, const prefetched_lines<C>& prefetch_into,
                                                         tile_edges edges = {}) {
  gemm_rows<C, paired, tuning<C>::MR>(rows, depth, a, p, c, add, prefetch_into, edges);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
