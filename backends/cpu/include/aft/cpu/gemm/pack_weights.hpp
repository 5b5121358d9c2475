// SPDX-License-Identifier: Apache-2.0
/// @file gemm/pack_weights.hpp  A panel of rows of exp(w), packed for the register tile.
#pragma once

#include <array>
#include <limits>

#include "../math/exp_weight.hpp"
#include "../simd/bf16_dot.hpp"
#include "../simd/transpose.hpp"
#include "geometry.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The log-weights of a panel as they were packed, where they are still at hand: of rows from `row` on and columns from
/// `column` on.
template <class C>
struct kept_rows {
  const C* first = nullptr;
  index_t ld = 0, row = 0, column = 0;
};

/// What the weights of a panel's rows were divided by: exp(base) * 2^exponent and `unit`, the mantissa of the
/// largest one, as the unit of a first_key is of a key's; per_unit is its inverse. `outside` is the weight of bias 0,
/// or 0 where no pair has it; `ends` those of the panel's tiles.
template <class C>
struct row_scale {
  C exponent[tuning<C>::MR];
  C base[tuning<C>::MR];
  C unit[tuning<C>::MR];
  C per_unit[tuning<C>::MR];
  C uniform[tuning<C>::MR];
  tile_edges edges;
  kept_rows<C> kept;  ///< where the plan keeps them
};

/// Rows of log-weights, and the distance from one to the next.
template <class C>
struct log_weights {
  const C* first;
  index_t ld;
  bool whole;  ///< they are whole vectors, or filled up to them with -inf
};

/// x in the first n lanes, -inf in the others.
template <class C>
inline vec<C> first_lanes(const vec<C>& x, index_t n) {
  constexpr auto places = [] {
    std::array<C, static_cast<std::size_t>(lanes<C>)> all{};
    for (std::size_t l = 0; l < all.size(); ++l) all[l] = static_cast<C>(l);
    return all;
  }();
  return xsimd::select(load(places.data()) < vec<C>(static_cast<C>(n)), x, vec<C>(-std::numeric_limits<C>::infinity()));
}

/// Fills rows of n numbers up to `padded`, whole vectors, with -inf.
template <class C>
[[gnu::flatten]] inline void pad_rows(index_t rows, index_t n, index_t padded, C* w, index_t ld) {
  constexpr index_t L = lanes<C>;
  const index_t whole = n / L * L;
  for (index_t r = 0; whole < padded && r < rows; ++r) {
    C* const row = w + r * ld;
    store(row + whole, first_lanes<C>(load(row + whole), n - whole));
    for (index_t s = whole + L; s < padded; s += L) store(row + s, vec<C>(-std::numeric_limits<C>::infinity()));
  }
}

/// top[r] = the largest of n numbers of row r, whole vectors, and of `least`; NaN is passed over.
template <class C>
inline void find_tops(index_t rows, index_t n, const log_weights<C>& w, const vec<C>& least, C* top) {
  constexpr index_t L = lanes<C>;
  const auto row_most = [&](index_t r) {
    const C* const row = w.first + r * w.ld;
    vec<C> most = least;
    for (index_t s = 0; s < n; s += L) most = max_ignoring_nan<C>(most, load(row + s));
    return most;
  };
  if constexpr (turns_rows<C>) {
    // A row's largest lane by itself is a chain of shuffles; of all rows together they are a transpose.
    const vec<C> none(-std::numeric_limits<C>::infinity());
    for (index_t first = 0; first < tuning<C>::MR; first += L) {
      vec<C> most[L];
      for (index_t r = 0; r < L; ++r) most[r] = first + r < rows ? row_most(first + r) : none;
      transpose(most);
      AFT_UNROLL(4)
      for (index_t half = L / 2; half > 0; half /= 2)
        for (index_t r = 0; r < half; ++r) most[r] = max_ignoring_nan<C>(most[r], most[r + half]);
      store(top + first, most[0]);
    }
    return;
  }
  for (index_t r = 0; r < rows; ++r) top[r] = largest_lane<C>(row_most(r));
}

/// panel[s][r] = per_unit[r] exp(w[r][s] - base[r]) / 2^exponent[r] for s < steps, M entries a step; 0 for r >= rows.
/// `paired`: of pairs of bfloat16. Reads rows up to a whole vector, or two.
template <class C>
inline void turn_weights(index_t rows, index_t steps, const log_weights<C>& w, const row_scale<C>& scale, bool paired,
                         C* panel) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::MR;
  if constexpr (turns_rows<C>) {
    for (index_t s = 0; s < steps; s += L) {
      for (index_t first = 0; first < M; first += L) {
        vec<C> block[L];
        AFT_UNROLL(16)
        for (index_t l = 0; l < L; ++l) {
          const index_t r = first + l;
          block[l] = vec<C>(C(0));
          if (r >= M || r >= rows) continue;
          const vec<C> origin(scale.base[r]), shift(scale.exponent[r]), per_unit(scale.per_unit[r]);
          const auto weights = [&](index_t at) {
            return weight_scaled<C>(load(w.first + r * w.ld + at) - origin, shift) * per_unit;
          };
          if constexpr (has_bf16_dot<C>) {
            if (paired) {
              block[l] = pair_up(weights(2 * s), weights(2 * s + L));
              continue;
            }
          }
          block[l] = weights(s);
        }
        transpose(block);
        const index_t count = steps - s < L ? steps - s : L;
        for (index_t i = 0; i < count; ++i) store_tile_rows<M>(panel + (s + i) * M, first, block[i]);
      }
    }
    return;
  }
  for (index_t r = 0; r < rows; ++r) {
    const vec<C> origin(scale.base[r]), shift(scale.exponent[r]), per_unit(scale.per_unit[r]);
    for (index_t s = 0; s < steps; s += L) {
      C line[L];
      store(line, weight_scaled<C>(load(w.first + r * w.ld + s) - origin, shift) * per_unit);
      for (index_t i = s; i < steps && i < s + L; ++i) panel[i * M + r] = line[i - s];
    }
  }
  for (index_t s = 0; s < steps; ++s)
    for (index_t r = rows; r < M; ++r) panel[s * M + r] = C(0);
}

/// n numbers as whole vectors, or pairs of vectors for pairs of bfloat16.
template <class C>
inline index_t padded_weights(index_t n, bool paired) {
  const index_t whole = paired ? 2 * lanes<C> : lanes<C>;
  return round_up(n, whole);
}

/// The largest log-weight of each row of a panel, as whole vectors of rows; -inf at first.
template <class C>
struct row_tops {
  static constexpr index_t R = round_up(tuning<C>::MR, lanes<C>);
  C top[R];

  row_tops() {
    for (index_t r = 0; r < R; ++r) top[r] = -std::numeric_limits<C>::infinity();
  }
  void join(const row_tops& other) {
    for (index_t r = 0; r < R; r += lanes<C>) store(top + r, max_ignoring_nan<C>(load(top + r), load(other.top + r)));
  }
};

/// The scales that those ask for; without `units` those are 1. `zero_uniform` says that pairs of bias 0 are summed
/// apart, so they must be covered.
template <class C>
inline void set_row_scale(index_t rows, const row_tops<C>& tops, bool zero_uniform, bool units, row_scale<C>& scale) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::MR;
  constexpr index_t R = row_tops<C>::R;
  constexpr C inf = std::numeric_limits<C>::infinity();
  // Rows as lanes: what a row needs besides its weights is formed for a vector of rows.
  C base[R], exponent[R], unit[R], per_unit[R], uniform[R];
  const vec<C> zero(C(0)), none(-inf), range(exp_constants<C>::range), lowest(exp_constants<C>::lowest);
  for (index_t r = 0; r < R; r += L) {
    const vec<C> t = load(tops.top + r);
    const auto empty = t == none;
    const auto beyond = !empty && ((t > range) || (t < lowest));
    const vec<C> origin = xsimd::select(beyond, t, zero);
    const vec<C> shift = exponent_of<C>(xsimd::select(empty || beyond, zero, t));
    store(base + r, origin);
    store(exponent + r, shift);
    const vec<C> one(C(1)), mantissa = units ? weight_unit<C>(t - origin) : one, by = one / mantissa;
    store(unit + r, mantissa);
    store(per_unit + r, by);
    store(uniform + r, weight_scaled<C>(zero - origin, shift) * by);
  }
  scale.kept = {};
  for (index_t r = 0; r < M; ++r) {
    scale.base[r] = base[r];
    scale.exponent[r] = exponent[r];
    scale.unit[r] = unit[r];
    scale.per_unit[r] = per_unit[r];
    scale.uniform[r] = zero_uniform && r < rows ? uniform[r] : C(0);
  }
}

/// Writes the weights of `rows` rows of n log-weights transposed, panel[s][row]; `paired`: of pairs of bfloat16,
/// panel[s / 2][row]. Rows are filled up with -inf to padded_weights(n, paired).
template <class C>
[[gnu::flatten]] inline void pack_weight_panel(index_t rows, index_t n, const log_weights<C>& w, bool zero_uniform,
                                               bool paired, bool units, C* panel, row_scale<C>& scale) {
  row_tops<C> tops;
  find_tops<C>(rows, padded_weights<C>(n, paired), w, vec<C>(zero_uniform ? C(0) : -std::numeric_limits<C>::infinity()),
               tops.top);
  set_row_scale<C>(rows, tops, zero_uniform, units, scale);
  turn_weights<C>(rows, paired ? (n + 1) / 2 : n, w, scale, paired, panel);
}

/// The same for a part of each row, whose scales are known.
template <class C>
[[gnu::flatten]] inline void pack_weight_part(index_t rows, index_t n, const log_weights<C>& w, bool paired, C* panel,
                                              const row_scale<C>& scale) {
  turn_weights<C>(rows, paired ? (n + 1) / 2 : n, w, scale, paired, panel);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
