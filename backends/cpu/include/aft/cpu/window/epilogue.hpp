// SPDX-License-Identifier: Apache-2.0
/// @file window/epilogue.hpp  Finishes a window's panel: the common calls in one loop from sums to y, or to dk and dv.
#pragma once

#include "../epilogue/queries.hpp"
#include "../gemm/loop_nest.hpp"
#include "../math/exp_weight.hpp"
#include "../softmax/proof.hpp"
#include "../softmax/row_state.hpp"
#include "../tensor/visible_keys.hpp"
#include "pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// y, average and lse of whole vectors, with the usual gate.
template <class C>
class quick_outputs final : public window_epilogue<C> {
 public:
  [[gnu::noinline]] quick_outputs(const problem& p, const row_state& state, const window_tiles<C>& tiles)
      : window_epilogue<C>(window_lines<C>(p.Tq), p.Tq), results_(p.Tq) {
    if (!p.y.set || p.gate_fn != gate::sigmoid || state.set) return;
    const auto add = [&](const field& f, index_t share, result& to) {
      if (!f.set) return true;
      to = {results_.count(), lane_field<C>(f, p.grid, tiles.at[0], share).streams_tiles(p)};
      if (!to.streamed) this->writes_.add(f, p.grid, tiles, share);
      return results_.add(f, p.grid, tiles, share);
    };
    ready_ = this->reads_.add(p.q, p.grid, tiles, 1) && add(p.y, 1, y_) && add(p.average, 1, average_) &&
             add(p.lse, p.d / p.hk, lse_);
    if (ready_) return;
    this->reads_.clear();
    this->writes_.clear();
  }

  bool epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                const uniform_sums<C>& uniform, const C* c, kept_keys<C>*) const override {
    if (!ready_) return false;
    const window_lines<C>& q = this->reads_;
    const written_rows<C> y = rows_of(y_, i, r0);
    const with_uniform<C> sums{rs, uniform};
    const auto run = [&]<bool saves>(const saved_outputs<C>* saved) {
      return gated_rows_epilogue<saves, C>(r1 - r0, cs, rs, sums, c, q.at(0, i, r0), q.step(0), y.to, y.step,
                                           y.streamed, saved);
    };
    if (average_.line < 0 && lse_.line < 0) return run.template operator()<false>(nullptr);
    const saved_outputs<C> saved{rows_of(average_, i, r0), rows_of(lse_, i, r0)};
    return run.template operator()<true>(&saved);
  }

 private:
  struct result {
    index_t line = -1;  ///< of results_; none: not wanted
    bool streamed = false;
  };
  written_rows<C> rows_of(const result& which, index_t i, index_t r0) const {
    if (which.line < 0) return {};
    return {results_.at(which.line, i, r0), results_.step(which.line), which.streamed};
  }

  window_lines<C> results_;
  result y_, average_, lse_;
  bool ready_ = false;
};

/// dv = e^k A and dk = e^k (v A - B) of whole vectors, and whether every lane of every key is proven; if not, what was
/// written is to be written again. The bits are those of key_epilogue.
template <class C>
[[gnu::noinline, gnu::flatten]] inline bool key_rows_epilogue(index_t rows, const column_scale<C>& cs,
                                                              const row_scale<C>& rs, const uniform_sums<C>& uniform,
                                                              const C* c, const C* k, index_t k_step, const C* v,
                                                              index_t v_step, written_rows<C> dk, written_rows<C> dv,
                                                              kept_keys<C>* kept) {
  using k_ = exp_constants<C>;
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  const vec<C> zero(C(0));
  const vec<C> most(most_scale<C>), least(least_scale<C>);
  const vec<C> inverse_scale = load(cs.inverse_scale), lift = load(cs.lift), unlift = load(cs.unlift);
  const vec<C> column_exponent = load(cs.exponent);
  C* rows_to = kept != nullptr ? kept->to : nullptr;
  const vec<C> kept_scale = kept != nullptr ? load(kept->scale) : zero;
  seen_size<C> keys, gradients;
  vec<C> high = least, low = most;
  for (index_t r = 0; r < rows; ++r)
    if (rs.base[r] != C(0)) return false;
  uniform.for_rows(rows, [&](index_t r, const vec<C>& uniform_A, const vec<C>& uniform_B) {
    const vec<C> key = load(k + r * k_step);
    const vec<C> weight(rs.uniform[r]);
    const vec<C> A = mul_add(weight, uniform_A, load(c + r * N));
    const vec<C> B = mul_add(weight, uniform_B, load(c + r * N + L));
    const split_exp<C> e = exp_weight<C>(key);
    const vec<C> exponent = e.exponent + (column_exponent + vec<C>(rs.exponent[r]));
    const vec<C> factor = times_pow2<C>(e.mantissa, exponent);
    const vec<C> value = load(v + r * v_step) * lift;
    const vec<C> difference = value * A - B;
    const vec<C> value_gradient = (factor * A) * inverse_scale;
    const vec<C> key_gradient = ((factor * difference) * inverse_scale) * unlift;
    if (dv.to != nullptr) put(dv.to + r * dv.step, value_gradient, dv.streamed);
    if (dk.to != nullptr) put(dk.to + r * dk.step, key_gradient, dk.streamed);
    keys.add(key);
    high = max_ignoring_nan<C>(high, exponent);  // NaN for such a key alone
    low = min_ignoring_nan<C>(low, exponent);
    gradients.add(value_gradient);
    gradients.add(key_gradient);
    if (kept == nullptr) return;
    const vec<C> Y = factor * kept_scale;
    store(rows_to + r * N, Y * value);
    store(rows_to + r * N + L, -Y);
  });
  return xsimd::all(keys.within(k_::range) && gradients.within(k_::largest) && (high <= most) && (low >= least));
}

/// dk and dv of whole vectors.
template <class C>
class quick_gradients final : public window_epilogue<C> {
 public:
  [[gnu::noinline]] quick_gradients(const backward_problem& p, const field& dk, const std::array<index_t, 3>& dk_grid,
                                    const window_tiles<C>& tiles)
      : window_epilogue<C>(key_lines<C>(p, tiles), p.Tk), p_(&p), dk_field_(&dk), dk_grid_(&dk_grid), tiles_(&tiles) {
    ready_ = !hides_keys(p);
    in_place_ = ready_ && this->reads_.count() > 0;
    const auto place = [&](const field& to, const std::array<index_t, 3>& grid, written_rows<C>& rows) {
      if (!to.set || !in_place_) return;
      const lane_group<C> group(to, grid, tiles.at, tiles.count, 1);
      in_place_ = group.in_place();
      if (!in_place_) return;
      rows = {group.first(), group.step(), lane_field<C>(to, grid, tiles.at[0], 1).streams_tiles(p)};
      if (!rows.streamed) this->writes_.add(to, grid, tiles, 1);
    };
    place(p.dv, p.grid, dv_);
    place(dk, dk_grid, dk_);
  }

  bool epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                const uniform_sums<C>& uniform, const C* c, kept_keys<C>* kept) const override {
    if (!in_place_) return staged_epilogue(i, cs, r0, r1, rs, uniform, c, kept);
    const auto at = [&](written_rows<C> rows) {
      if (rows.to != nullptr) rows.to += r0 * rows.step + i * lanes<C>;
      return rows;
    };
    const window_lines<C>& keys = this->reads_;
    return key_rows_epilogue<C>(r1 - r0, cs, rs, uniform, c, keys.at(0, i, r0), keys.step(0), keys.at(1, i, r0),
                                keys.step(1), at(dk_), at(dv_), kept);
  }

 private:
  /// Of other layouts and types: through the first-level cache. Of rows not all proven neither dk nor dv is written;
  /// what `kept` holds by then key_epilogue writes again.
  [[gnu::noinline]] bool staged_epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1,
                                         const row_scale<C>& rs, const uniform_sums<C>& uniform, const C* c,
                                         kept_keys<C>* kept) const {
    constexpr index_t L = lanes<C>;
    constexpr index_t M = tuning<C>::MR;
    const backward_problem& p = *p_;
    const lane_tile<C>& tile = tiles_->at[i];
    if (!ready_ || tile.count != L) return false;
    C k[M * L], v[M * L], dk[M * L], dv[M * L];
    const key_reader<C> keys(p, tile);
    keys.read(r0, r1, k, v);
    keys.prefetch(r1, r1 + M);
    const written_rows<C> to_dk{dk_field_->set ? dk : nullptr, L, false}, to_dv{p.dv.set ? dv : nullptr, L, false};
    if (!key_rows_epilogue<C>(r1 - r0, cs, rs, uniform, c, k, L, v, L, to_dk, to_dv, kept)) return false;
    if (p.dv.set) write_panel<C>(p, p.dv, p.grid, tile, r0, r1, M, dv);
    if (dk_field_->set) write_panel<C>(p, *dk_field_, *dk_grid_, tile, r0, r1, M, dk);
    return true;
  }

  const backward_problem* p_;
  const field* dk_field_;
  const std::array<index_t, 3>* dk_grid_;
  const window_tiles<C>* tiles_;
  bool ready_ = false, in_place_ = false;
  written_rows<C> dk_, dv_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
