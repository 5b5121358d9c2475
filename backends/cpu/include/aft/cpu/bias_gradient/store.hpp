// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/store.hpp  Where the tiles of dw go: dense or banded storage, factors, or the taps of a filter.
#pragma once

#include <algorithm>
#include <optional>

#include "../runtime/streaming.hpp"
#include "gemm.hpp"
#include "dealt_rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
class bias_gradient_job;

/// What of a bias_gradient_job an operator needs, by pointer, so that a program compiles no more; null where there is
/// no bias.
template <class C>
using bias_gradient_pass = void (bias_gradient_job<C>::*)(const gradient_inputs&, const staged_factors<C>&);

/// The gradient of the bias of one call. Made before anything is written, so that running out of memory leaves the
/// outputs alone.
template <class C>
class bias_gradient_job {
 public:
  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t N = tuning<C>::NR;

  /// `tiled`: run() will be called, with products of pairs of bfloat16 if `paired`; else rows come from elsewhere, see
  /// write_row.
  bias_gradient_job(const backward_problem& p, int threads, bias_gradient_pass<C> pass, bool tiled, bool paired,
                    scratch& memory)
      : p_(&p), batched_(p.bias.batch > 1 && p.B > 1), threads_(threads), pass_(pass) {
    if (tiled) plan_.emplace(p, batched_, paired, threads, memory);
    max_abs_ = memory.take<C>(threads * lanes<C>);
    const bias_ref& d = p.dbias;
    if (d.kind == bias_kind::factorized) {
      if (d.u.set) du_ = memory.take<C>(d.u_heads * p.Tq * d.rank);
      if (d.v.set) dv_ = memory.take<C>(d.v_heads * p.Tk * d.rank);
    } else if (d.kind == bias_kind::filter) {
      dr_ = memory.take<C>(taps());
      partial_ = memory.take<C>(plan_->key_tiles * taps());
    }
  }

  /// Where the largest |g| of every thread is expected.
  C* max_abs() const { return max_abs_; }

  void run(const gradient_inputs& in, const staged_factors<C>& factors) { (this->*pass_)(in, factors); }

  void run_tiles(const gradient_inputs& in, const staged_factors<C>& factors) {
    const backward_problem& p = *p_;
    clear();
    if (any_pair()) {
      find_kappa<C>(p, *plan_);
      plan_->scale = find_gradient_scale<C>(in, threads_, max_abs_);
      const index_t dh = p.d / p.bias.heads;
      for (index_t b = 0; b < (batched_ ? p.B : 1); ++b) {
        for (index_t h = 0; h < p.bias.heads; ++h) {
          run_batch_item(in, factors, columns_of(h, b, dh), h, b);
          if (dr_ != nullptr) write_taps(h);
        }
      }
    } else if (p.dbias.kind == bias_kind::generated) {
      hand_out_zeros<C>(p, *plan_);
    }
    if (du_ != nullptr) write_factor(p.dbias.u, p.dbias.u_heads, p.Tq, du_);
    if (dv_ != nullptr) write_factor(p.dbias.v, p.dbias.v_heads, p.Tk, dv_);
  }

  /// Whether rows are worth writing by streaming stores.
  bool streams() const {
    const bias_ref& d = p_->dbias;
    const index_t batch = d.kind == bias_kind::dense ? d.batch : 1;
    return batch * d.heads * p_->Tq * row_entries() * size_of(d.w.type) >= streaming_from::output_bytes;
  }

  /// A row of dw that is `dw` for the keys [first, last) and 0 elsewhere.
  void write_row(index_t b, index_t h, index_t t, index_t first, index_t last, const C* dw, bool streamed) const {
    const matrix& m = p_->dbias.w;
    const bool banded = p_->dbias.kind == bias_kind::banded;
    const index_t place = banded && first < last ? first - t + p_->win.before : first;
    const index_t n = row_entries();
    std::byte* const row = m.data + ((p_->dbias.batch > 1 ? b : 0) * m.sb + h * m.sh + t * m.sr) * size_of(m.type);
    const auto at = [&](index_t i) { return row + i * m.sc * size_of(m.type); };
    const index_t end = place + last - first;
    zero_strided<C>(m.type, at(0), m.sc, place, streamed);
    write_strided(m.type, at(place), m.sc, last - first, dw);
    zero_strided<C>(m.type, at(end), m.sc, n - end, streamed);
  }

 private:
  bool any_pair() const { return p_->B > 0 && p_->d > 0 && p_->Tq > 0 && p_->Tk > 0; }
  index_t taps() const { return p_->taps[0] * p_->taps[1] * p_->taps[2]; }

  gradient_columns<C> columns_of(index_t h, index_t b, index_t dh) const {
    gradient_columns<C> columns;
    columns.b0 = b;
    columns.c0 = h * dh;
    columns.dh = dh;
    columns.count = dh * (batched_ ? 1 : p_->B);
    columns.per_group = plan_ ? columns.count / plan_->groups : columns.count;
    return columns;
  }

  /// Entries of a row of dw, whether it has one for every key or for every place of the window.
  index_t row_entries() const {
    return p_->dbias.kind == bias_kind::dense ? p_->Tk : p_->win.before + p_->win.after + 1;
  }
  void run_batch_item(const gradient_inputs& in, const staged_factors<C>& factors, const gradient_columns<C>& columns,
                      index_t h, index_t b) {
    const backward_problem& p = *p_;
    const bias_ref& d = p.dbias;
    const auto no_edge = [](index_t, index_t) {};
    const auto tiles = [&](bool by_keys, const auto& sink) {
      gradient_tiles<C>(in, *plan_, factors, columns, h, b, by_keys, gradient_sink<C>(sink), block_edge(no_edge),
                        block_edge(no_edge));
    };
    switch (d.kind) {
      case bias_kind::none:
      case bias_kind::sparse: break;
      case bias_kind::dense:
      case bias_kind::banded:
        tiles(true, [&](index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) {
          for (index_t t = r0; t < r1; ++t) write_pairs(b, h, t, s0, s1, dw + (t - r0) * N);
        });
        break;
      case bias_kind::factorized:
        // Each sum has one owner, so dw is formed once for du (by rows) and once for dv (by keys): twice the products,
        // but no second copy of a factor per thread and no order that depends on threads.
        if (dv_ != nullptr) {
          C* const out = dv_ + (d.v_heads > 1 ? h : 0) * p.Tk * d.rank;
          const C* const u = factors.u + h * p.Tq * d.rank;
          tiles(true, [&](index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) {
            for (index_t s = s0; s < s1; ++s) add_rows(dw + (s - s0), N, r1 - r0, u + r0 * d.rank, out + s * d.rank);
          });
        }
        if (du_ != nullptr) {
          C* const out = du_ + (d.u_heads > 1 ? h : 0) * p.Tq * d.rank;
          const C* const v = factors.v + h * p.Tk * d.rank;
          tiles(false, [&](index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) {
            for (index_t t = r0; t < r1; ++t)
              add_rows(dw + (t - r0) * N, 1, s1 - s0, v + s0 * d.rank, out + t * d.rank);
          });
        }
        break;
      case bias_kind::generated: {
        const dealt_rows<C> rows(p, *plan_, b, h);
        index_t origin = 0;
        const auto begin = [&](index_t r0, index_t r1) {
          origin = r0;
          rows.clear(r0, r1);
        };
        const auto add = [&](index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) {
          rows.add(origin, r0, r1, s0, s1, dw);
        };
        const auto end = [&](index_t r0, index_t r1) { rows.hand_out(r0, r1); };
        gradient_tiles<C>(in, *plan_, factors, columns, h, b, true, gradient_sink<C>(add), block_edge(begin),
                          block_edge(end));
        break;
      }
      case bias_kind::filter:
        tiles(true, [&](index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) {
          add_diagonals(r0, r1, s0, s1, dw, partial_ + s0 / N * taps());
        });
        for (index_t j = 0; j < plan_->key_tiles; ++j) {
          for (index_t x = 0; x < taps(); ++x) {
            dr_[x] += partial_[j * taps() + x];
            partial_[j * taps() + x] = C(0);
          }
        }
        break;
    }
  }

  /// dw of hidden pairs, of pairs outside the window and of banded entries without a key is exactly 0.
  void clear() {
    const backward_problem& p = *p_;
    const bias_ref& d = p.dbias;
    const bool covered = d.kind == bias_kind::dense && !p.win.bounded && !p.causal && p.B > 0 && p.d > 0;
    if ((d.kind == bias_kind::dense && !covered) || d.kind == bias_kind::banded) {
      const index_t batch = d.kind == bias_kind::dense ? d.batch : 1;
      const bool streamed = streams();
      parallel_for(batch * d.heads * p.Tq, threads_, [&](index_t i, int) {
        write_row(i / p.Tq / d.heads, i / p.Tq % d.heads, i % p.Tq, 0, 0, nullptr, streamed);
        fence_stores();
      });
    }
    for (index_t i = 0; du_ != nullptr && i < d.u_heads * p.Tq * d.rank; ++i) du_[i] = C(0);
    for (index_t i = 0; dv_ != nullptr && i < d.v_heads * p.Tk * d.rank; ++i) dv_[i] = C(0);
    if (dr_ != nullptr) {
      for (index_t i = 0; i < taps(); ++i) dr_[i] = C(0);
      for (index_t i = 0; i < plan_->key_tiles * taps(); ++i) partial_[i] = C(0);
      for (index_t h = 0; h < d.heads; ++h) write_taps(h);
    }
  }

  void write_pairs(index_t b, index_t h, index_t t, index_t s0, index_t s1, const C* dw) const {
    const backward_problem& p = *p_;
    const matrix& m = p.dbias.w;
    index_t from = s0;
    index_t to = s1;
    if (p.win.bounded) {
      from = t - p.win.before > from ? t - p.win.before : from;
      to = t + p.win.after + 1 < to ? t + p.win.after + 1 : to;
    }
    if (from >= to) return;
    const index_t first = p.dbias.kind == bias_kind::banded ? from - t + p.win.before : from;
    const index_t at = (p.dbias.batch > 1 ? b : 0) * m.sb + h * m.sh + t * m.sr + first * m.sc;
    write_strided(m.type, m.data + at * size_of(m.type), m.sc, to - from, dw + (from - s0));
  }

  /// out[0..n) += sum_i a[i * step] x[i][0..n) for i < count, n being the rank.
  [[gnu::noinline, gnu::flatten]] void add_rows(const C* a, index_t step, index_t count, const C* x, C* out) const {
    constexpr index_t L = lanes<C>;
    const index_t n = p_->dbias.rank;
    index_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) add_vectors<4>(a, step, count, x + i, out + i);
    for (; i + L <= n; i += L) add_vectors<1>(a, step, count, x + i, out + i);
    for (; i < n; ++i) {
      for (index_t j = 0; j < count; ++j)
        if (a[j * step] != C(0)) out[i] += a[j * step] * x[j * n + i];
    }
  }
  template <index_t V>
  void add_vectors(const C* a, index_t step, index_t count, const C* x, C* out) const {
    constexpr index_t L = lanes<C>;
    const index_t n = p_->dbias.rank;
    vec<C> sum[V];
    AFT_UNROLL(4)
    for (index_t q = 0; q < V; ++q) sum[q] = load(out + q * L);
    for (index_t j = 0; j < count; ++j, x += n) {
      const C factor = a[j * step];
      // An untouched pair is exactly 0 and must not spread a NaN of the other factor.
      if (factor == C(0)) continue;
      const vec<C> by(factor);
      AFT_UNROLL(4)
      for (index_t q = 0; q < V; ++q) sum[q] = mul_add(by, load(x + q * L), sum[q]);
    }
    AFT_UNROLL(4)
    for (index_t q = 0; q < V; ++q) store(out + q * L, sum[q]);
  }

  /// dr[j] = sum of dw[t, t + j - left] over the queries whose tap j falls on the grid.
  void add_diagonals(index_t r0, index_t r1, index_t s0, index_t s1, const C* dw, C* sums) const {
    const backward_problem& p = *p_;
    std::array<index_t, 3> g = p.grid;
    // Of a sequence there may be more keys than queries: one row that holds both.
    if (g[0] == 1 && g[1] == 1) g[2] = max_of(p.Tq, p.Tk);
    for (index_t t = r0; t < r1; ++t) {
      for (index_t s = s0; s < s1; ++s) {
        const index_t j2 = s % g[2] - t % g[2] + p.left[2];
        const index_t j1 = s / g[2] % g[1] - t / g[2] % g[1] + p.left[1];
        const index_t j0 = s / (g[2] * g[1]) - t / (g[2] * g[1]) + p.left[0];
        if (j0 < 0 || j0 >= p.taps[0] || j1 < 0 || j1 >= p.taps[1] || j2 < 0 || j2 >= p.taps[2]) continue;
        sums[(j0 * p.taps[1] + j1) * p.taps[2] + j2] += dw[(t - r0) * N + s - s0];
      }
    }
  }

  void write_taps(index_t h) {
    const backward_problem& p = *p_;
    const bias_ref& d = p.dbias;
    const index_t size = size_of(d.r_type);
    for (index_t x = 0; x < taps(); ++x) {
      const index_t j2 = x % p.taps[2];
      const index_t j1 = x / p.taps[2] % p.taps[1];
      const index_t j0 = x / p.taps[2] / p.taps[1];
      const index_t at = h * d.r_sh + j0 * d.r_sj[0] + j1 * d.r_sj[1] + j2 * d.r_sj[2];
      write_strided(d.r_type, d.r + at * size, 1, 1, dr_ + x);
      dr_[x] = C(0);
    }
  }

  void write_factor(const matrix& m, index_t heads, index_t T, const C* from) const {
    const index_t n = p_->dbias.rank;
    for (index_t h = 0; h < heads; ++h)
      for (index_t t = 0; t < T; ++t)
        write_strided(m.type, m.data + (h * m.sh + t * m.sr) * size_of(m.type), m.sc, n, from + (h * T + t) * n);
  }

  const backward_problem* p_;
  bool batched_;
  int threads_;
  bias_gradient_pass<C> pass_;
  std::optional<bias_gradient_plan<C>> plan_;
  C* max_abs_ = nullptr;
  C* du_ = nullptr;
  C* dv_ = nullptr;
  C* dr_ = nullptr;
  C* partial_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
