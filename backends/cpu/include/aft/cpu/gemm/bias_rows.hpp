// SPDX-License-Identifier: Apache-2.0
/// @file gemm/bias_rows.hpp  The log-weights w[t,s] of one bias batch item, whatever the caller stores them as.
#pragma once

#include <cstring>
#include <limits>

#include <aft/core/problem/problem.hpp>

#include "../simd/transpose.hpp"
#include "../tensor/stage.hpp"
#include "pack_weights.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The members of a factorized bias in the arithmetic type, each twice: plain rows, and blocks of `width` positions
/// in which a position is a lane, so that a row of u v^T needs no transpose. Empty for other biases.
template <class C>
struct staged_factors {
  static constexpr index_t width = 2 * lanes<C>;
  const C* u = nullptr;          ///< [h][t][n]
  const C* v = nullptr;          ///< [h][s][n]
  const C* u_blocked = nullptr;  ///< [h][t / width][n][width]
  const C* v_blocked = nullptr;  ///< [h][s / width][n][width]

  static index_t blocks(index_t T) { return ceil_div(T, width); }
};

/// w[t,s] for one head (and one batch element, where bias or mask have a batch axis); -inf where causality, a
/// per-query mask or an excluding window hides the pair. Keys that are hidden for all queries are the matter of
/// hide_keys. Its functions are of one row or more each, and large: a copy in every caller took a tenth of the time
/// that a gradient needs to compile.
template <class C>
class pair_weights {
 public:
  pair_weights(const problem& p, const staged_factors<C>& factors, index_t b, index_t h)
      : p_(&p), factors_(factors), b_(b), h_(h) {}

  /// The same for a panel whose log-weights are at hand, so that the caller's function is not asked again. `by_keys`:
  /// the panel's rows are keys.
  pair_weights beside(const kept_rows<C>& kept, bool by_keys) const {
    pair_weights same = *this;
    same.kept_ = kept;
    same.kept_by_keys_ = by_keys;
    return same;
  }

  /// out[s - s0] = w[t,s] for s0 <= s < s1.
  AFT_COMPILE_ONCE void row(index_t t, index_t s0, index_t s1, C* out) const {
    const span seen = inside_of(t, s0, s1);
    if (seen.first < seen.last) inside(t, seen.first, seen.last, out + (seen.first - s0));
    cover(t, s0, s1, seen, out);
  }

  /// Whether row t and those after it have the log-weights of keys below s1 as they are stored.
  bool as_stored(index_t t, index_t s1) const {
    return stores_rows() && (!p_->causal || s1 <= t + 1 + p_->first_query);
  }
  /// Whether some rows have.
  bool stores_rows() const { return in_rows(bias_kind::dense) && !p_->win.bounded && !p_->pair_mask(); }
  /// Whether rows are u v^T and nothing hides pairs but causality.
  bool makes_rows() const { return p_->bias.kind == bias_kind::factorized && !p_->win.bounded && !p_->pair_mask(); }
  /// Those rows, from key s0 on.
  log_weights<C> stored(index_t t, index_t s0) const { return {dense_row(t) + s0, p_->bias.w.sr, true}; }

  /// out[(t - t0) * ld + s - s0] = w[t,s]. Writes whole vectors, of which ld has room for.
  AFT_COMPILE_ONCE log_weights<C> rows(index_t t0, index_t t1, index_t s0, index_t s1, C* out, index_t ld) const {
    if (p_->win.bounded && !p_->pair_mask() && (in_rows(bias_kind::dense) || in_rows(bias_kind::banded))) {
      window_rows(t0, t1, s0, s1, out, ld);
      return {out, ld, true};
    }
    if (p_->bias.kind != bias_kind::factorized) {
      for (index_t t = t0; t < t1; ++t) row(t, s0, s1, out + (t - t0) * ld);
      return {out, ld, false};
    }
    // u v^T for all, also where a pair turns out to be hidden: rows that share their keys' factors take half the time.
    dot(factors_.u, p_->Tq, t0, t1, factors_.v_blocked, p_->Tk, s0, s1, out, ld);
    for (index_t t = t0; t < t1; ++t) cover(t, s0, s1, inside_of(t, s0, s1), out + (t - t0) * ld);
    return {out, ld, false};
  }

  /// The transposed bias: out[(s - s0) * ld + t - t0] = w[t,s]. Walks w along its rows, a cache line at a time.
  AFT_COMPILE_ONCE void columns(index_t s0, index_t s1, index_t t0, index_t t1, C* out, index_t ld) const {
    if (p_->bias.kind == bias_kind::factorized && !p_->win.bounded && !p_->pair_mask()) {
      dot(factors_.v, p_->Tk, s0, s1, factors_.u_blocked, p_->Tq, t0, t1, out, ld);
      return cover_columns(s0, s1, t0, t1, out, ld);
    }
    if (in_rows(bias_kind::dense) && !p_->win.bounded && !p_->pair_mask()) {
      for (index_t t = t0; t < t1; t += lanes<C>) {
        const index_t count = t1 - t < lanes<C> ? t1 - t : lanes<C>;
        transpose_columns<C>(dense_row(t) + s0, p_->bias.w.sr, count, s1 - s0, out + (t - t0), ld);
      }
      return cover_columns(s0, s1, t0, t1, out, ld);
    }
    constexpr index_t most = 64;
    if (p_->bias.kind == bias_kind::generated && kept_.first == nullptr) {
      C lines[lanes<C> * most] = {};
      for (index_t s = s0; s < s1; s += most) {
        const index_t end = min_of(s + most, s1);
        for (index_t t = t0; t < t1; t += lanes<C>) {
          const index_t count = min_of(t1 - t, lanes<C>);
          for (index_t i = 0; i < count; ++i) row(t + i, s, end, lines + i * most);
          transpose_columns<C>(lines, most, count, end - s, out + (s - s0) * ld + (t - t0), ld);
        }
      }
      return;
    }
    C line[most];
    for (index_t s = s0; s < s1; s += most) {
      const index_t end = min_of(s + most, s1);
      for (index_t t = t0; t < t1; ++t) {
        row(t, s, end, line);
        for (index_t i = s; i < end; ++i) out[(i - s0) * ld + t - t0] = line[i - s];
      }
    }
  }

  /// Asks for the part of a stored bias that rows() will read. Inlined by force, see lane_field::prefetch.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t s0, index_t s1) const {
    if (!in_rows(bias_kind::dense)) return;
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(C));
    for (index_t t = t0; t < t1; ++t)
      for (index_t s = s0; s < s1; s += line) AFT_PREFETCH(dense_row(t) + s);
  }

 private:
  /// -inf where causality hides a pair of a transposed bias.
  void cover_columns(index_t s0, index_t s1, index_t t0, index_t t1, C* out, index_t ld) const {
    for (index_t s = s0; p_->causal && s < s1; ++s)
      for (index_t t = t0; t < t1 && t + p_->first_query < s; ++t)
        out[(s - s0) * ld + t - t0] = -std::numeric_limits<C>::infinity();
  }

  /// Whether w is of this kind, and in rows of the arithmetic type.
  bool in_rows(bias_kind kind) const {
    return p_->bias.kind == kind && p_->bias.w.type == dtype_of<C> && p_->bias.w.sc == 1;
  }
  const C* dense_row(index_t t) const {
    const matrix& w = p_->bias.w;
    return reinterpret_cast<const C*>(w.data) + (p_->bias.batch > 1 ? b_ : 0) * w.sb + h_ * w.sh + t * w.sr;
  }

  const C* banded(index_t t, index_t s) const {
    const matrix& w = p_->bias.w;
    return reinterpret_cast<const C*>(w.data) + h_ * w.sh + t * w.sr + s - t + p_->win.before;
  }

  static index_t clamp(index_t x, index_t low, index_t high) { return x < low ? low : min_of(x, high); }

  /// Of the keys [s0, s1) of a query those of the past, [s0, seen), and among them those inside the window.
  struct span {
    index_t first, last, seen;
  };
  span inside_of(index_t t, index_t s0, index_t s1) const {
    index_t seen = s1;
    const index_t past = t + 1 + p_->first_query;
    if (p_->causal && past < s1) seen = max_of(past, s0);
    if (!p_->win.bounded) return {s0, seen, seen};
    const index_t first = clamp(t - p_->win.before, s0, seen);
    return {first, clamp(t + p_->win.after + 1, first, seen), seen};
  }

  /// Rows whose windows lie in_rows, filled up to whole vectors with -inf: windows are short, and their rows many.
  [[gnu::flatten]] void window_rows(index_t t0, index_t t1, index_t s0, index_t s1, C* out, index_t ld) const {
    constexpr index_t L = lanes<C>;
    const vec<C> uniform(p_->excluded ? -std::numeric_limits<C>::infinity() : C(0));
    for (index_t t = t0; t < t1; ++t, out += ld) {
      const span seen = inside_of(t, s0, s1);
      const C* window = nullptr;  // where it is empty, w may be nothing at all
      if (seen.first < seen.last)
        window = p_->bias.kind == bias_kind::dense ? dense_row(t) + seen.first : banded(t, seen.first);
      for (index_t s = s0; s < s1; s += L) {
        const vec<C> beside = first_lanes<C>(uniform, seen.seen - s);
        const index_t first = clamp(seen.first, s, s + L), last = clamp(seen.last, first, s + L);
        store(out + (s - s0),
              first == last ? beside : load_lanes<C>(window + (first - seen.first), first - s, last - first, beside));
      }
    }
  }

  /// Writes what is not inside: pairs outside the window, hidden ones.
  void cover(index_t t, index_t s0, index_t s1, const span& seen, C* out) const {
    const C hidden = -std::numeric_limits<C>::infinity();
    const C uniform = p_->excluded ? hidden : C(0);
    for (index_t s = s0; s < seen.first; ++s) out[s - s0] = uniform;
    for (index_t s = seen.last; s < seen.seen; ++s) out[s - s0] = uniform;
    for (index_t s = seen.seen; s < s1; ++s) out[s - s0] = hidden;
    if (p_->pair_mask()) {
      for (index_t s = s0; s < seen.seen; ++s)
        if (p_->mask_hides(b_, t, s)) out[s - s0] = hidden;
    }
  }

  void inside(index_t t, index_t s0, index_t s1, C* out) const {
    const bias_ref& bias = p_->bias;
    const index_t size = size_of(bias.w.type);
    switch (bias.kind) {
      case bias_kind::none:
        for (index_t s = s0; s < s1; ++s) out[s - s0] = C(0);
        break;
      case bias_kind::dense: {
        if (in_rows(bias_kind::dense)) {
          std::memcpy(out, dense_row(t) + s0, static_cast<std::size_t>(s1 - s0) * sizeof(C));
          break;
        }
        const index_t at = (bias.batch > 1 ? b_ : 0) * bias.w.sb + h_ * bias.w.sh + t * bias.w.sr + s0 * bias.w.sc;
        read_strided(bias.w.type, bias.w.data + at * size, bias.w.sc, s1 - s0, out);
        break;
      }
      case bias_kind::banded: {
        const index_t at = h_ * bias.w.sh + t * bias.w.sr + (s0 - t + p_->win.before) * bias.w.sc;
        read_strided(bias.w.type, bias.w.data + at * size, bias.w.sc, s1 - s0, out);
        break;
      }
      case bias_kind::factorized: dot(factors_.u, p_->Tq, t, t + 1, factors_.v_blocked, p_->Tk, s0, s1, out, 0); break;
      case bias_kind::generated: generate(t, s0, s1, out); break;
      case bias_kind::sparse: break;  // has rows of its own
      case bias_kind::filter:
        filter_row(t, s0, s1, p_->excluded ? -std::numeric_limits<C>::infinity() : C(0), out);
        break;
    }
  }

  /// What the caller's function says, or said when the panel was packed. The kept part of a panel holds whatever lies
  /// inside the window.
  void generate(index_t t, index_t s0, index_t s1, C* out) const {
    if (kept_.first == nullptr) {
      const bias_ref& bias = p_->bias;
      return bias.rows->generate(bias.rows->f, bias.rows_batch + (bias.batch > 1 ? b_ : 0), bias.rows_head + h_,
                                 bias.rows_first + t, s0, out, s1 - s0);
    }
    const index_t row = kept_by_keys_ ? s0 : t, column = kept_by_keys_ ? t : s0;
    const C* const from = kept_.first + (row - kept_.row) * kept_.ld + column - kept_.column;
    for (index_t s = s0; s < s1; ++s) out[s - s0] = from[(s - s0) * (kept_by_keys_ ? kept_.ld : 1)];
  }

  /// out[(r - r0) * ld + x - x0] = sum_n plain[r][n] blocked[x][n]. One chain a pair in the order of n, whichever of
  /// the two are rows and however many: rows and columns of w agree bit for bit.
  AFT_COMPILE_ONCE void dot(const C* plain, index_t R, index_t r0, index_t r1, const C* blocked, index_t X, index_t x0,
                            index_t x1, C* out, index_t ld) const {
    if (r1 - r0 == 1) return dot_rows<1>(plain, R, r0, r1, blocked, X, x0, x1, out, ld);
    // Two vectors of each fit the registers beside the factors.
    constexpr index_t together = tuning<C>::MR / 2;
    for (index_t r = r0; r < r1; r += together)
      dot_rows<together>(plain, R, r, r1, blocked, X, x0, x1, out + (r - r0) * ld, ld);
  }

  /// The rows r0 ... r0 + K - 1 of `dot`, as far as they lie below r1.
  template <index_t K>
  void dot_rows(const C* plain, index_t R, index_t r0, index_t r1, const C* blocked, index_t X, index_t x0, index_t x1,
                C* out, index_t ld) const {
    constexpr index_t width = staged_factors<C>::width;
    const index_t n = p_->bias.rank;
    const C* left[K];
    for (index_t j = 0; j < K; ++j) left[j] = plain + (h_ * R + (r0 + j < r1 ? r0 + j : r1 - 1)) * n;
    for (index_t block = x0 / width; block * width < x1; ++block) {
      const C* from = blocked + (h_ * staged_factors<C>::blocks(X) + block) * n * width;
      vec<C> low[K], high[K];
      AFT_UNROLL(7)
      for (index_t j = 0; j < K; ++j) low[j] = high[j] = vec<C>(C(0));
      for (index_t i = 0; i < n; ++i, from += width) {
        const vec<C> x_low = load(from), x_high = load(from + lanes<C>);
        AFT_UNROLL(7)
        for (index_t j = 0; j < K; ++j) {
          const vec<C> factor(left[j][i]);
          low[j] = mul_add(factor, x_low, low[j]);
          high[j] = mul_add(factor, x_high, high[j]);
        }
      }
      const index_t begin = block * width;
      const bool whole = begin >= x0 && begin + width <= x1;
      C part[width];
      AFT_UNROLL(7)
      for (index_t j = 0; j < K; ++j) {
        if (r0 + j >= r1) break;
        C* const line = out + j * ld;
        C* const to = whole ? line + (begin - x0) : part;
        store(to, low[j]);
        store(to + lanes<C>, high[j]);
        for (index_t x = max_of(begin, x0); !whole && x < begin + width && x < x1; ++x) line[x - x0] = part[x - begin];
      }
    }
  }

  /// r[h, s - t + left] inside the filter's box (AFT Eq. 6, DAFT Eq. 8), grids flattened row-major.
  void filter_row(index_t t, index_t s0, index_t s1, C uniform, C* out) const {
    for (index_t s = s0; s < s1; ++s) out[s - s0] = uniform;
    const auto& g = p_->grid;
    // Of a sequence there may be more queries than keys: positions there are no coordinates of a grid.
    const bool flat = g[0] == 1 && g[1] == 1;
    const index_t length = flat ? p_->Tk : g[2];
    const index_t x2 = flat ? t : t % g[2];
    const index_t x1 = flat ? 0 : (t / g[2]) % g[1];
    const index_t x0 = flat ? 0 : t / (g[2] * g[1]);
    const index_t size = size_of(p_->bias.r_type);
    for (index_t j0 = 0; j0 < p_->taps[0]; ++j0) {
      const index_t y0 = x0 + j0 - p_->left[0];
      if (y0 < 0 || y0 >= g[0]) continue;
      for (index_t j1 = 0; j1 < p_->taps[1]; ++j1) {
        const index_t y1 = x1 + j1 - p_->left[1];
        if (y1 < 0 || y1 >= g[1]) continue;
        const index_t line = (y0 * g[1] + y1) * length;
        // Taps of this line that fall on the grid and into [s0, s1).
        const index_t shift = line + x2 - p_->left[2];
        index_t a = p_->left[2] - x2 > s0 - shift ? p_->left[2] - x2 : s0 - shift;
        if (a < 0) a = 0;
        index_t e = length + p_->left[2] - x2 < s1 - shift ? length + p_->left[2] - x2 : s1 - shift;
        if (e > p_->taps[2]) e = p_->taps[2];
        if (a >= e) continue;
        const index_t at = h_ * p_->bias.r_sh + j0 * p_->bias.r_sj[0] + j1 * p_->bias.r_sj[1] + a * p_->bias.r_sj[2];
        read_strided(p_->bias.r_type, p_->bias.r + at * size, p_->bias.r_sj[2], e - a, out + (shift + a - s0));
      }
    }
  }

  const problem* p_;
  staged_factors<C> factors_;
  index_t b_;
  index_t h_;
  kept_rows<C> kept_{};
  bool kept_by_keys_ = false;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
