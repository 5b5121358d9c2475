// SPDX-License-Identifier: Apache-2.0
/// @file window_outputs.hpp  Finishes the rows of a window's panel: the common call in one loop from sums to y.
#pragma once

#include "pair_finish.hpp"
#include "window_fold.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// y[r] = average gate(q) of whole vectors in one go, and whether every lane of every row is proven; if not, q is as
/// before, and what y holds is to be written again.
template <class C>
[[gnu::noinline, gnu::flatten]] inline bool finish_gated_rows(index_t rows, const column_scale<C>& cs,
                                                              const row_scale<C>& rs, const outside_sums<C>& outside,
                                                              const C* c, const C* q, index_t q_step, C* y,
                                                              index_t y_step, bool around) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  const vec<C> unscale = load(cs.unscale);
  proof_of_rows<C> proof(load(cs.floor));
  seen_size<C> growths;
  C held[tuning<C>::rows * L];
  // Stored one by one between the divisions, lines do not wait for each other.
  const bool direct = y != q;
  C* const to = direct ? y : held;
  const index_t to_step = direct ? y_step : L;
  const bool past = direct && around;
  outside.for_rows(rows, [&](index_t r, const vec<C>& outside_num, const vec<C>& outside_den) {
    const vec<C> weight(rs.outside[r]);
    const vec<C> num = mul_add(weight, outside_num, load(c + r * N));
    const vec<C> den = mul_add(weight, outside_den, load(c + r * N + L));
    const vec<C> growth = gate_detail::growth<C>(load(q + r * q_step));
    const vec<C> o = shared_division<C>(num, den, unscale, growth);
    put(to + r * to_step, o, past);
    proof.add(num, den, o);
    growths.add(growth);
  });
  if (!xsimd::all(proof.proven() && growths.within(shared_growth<C>))) return false;
  for (index_t r = 0; !direct && r < rows; ++r) put(y + r * y_step, load(held + r * L), around);
  return true;
}

/// y alone, of whole vectors, with the usual gate.
template <class C>
class quick_outputs final : public window_finish<C> {
 public:
  [[gnu::noinline]] quick_outputs(const problem& p, const row_state& state, const window_tiles<C>& tiles)
      : window_finish<C>(window_lines<C>(p.Tq), p.Tq), y_(p.Tq) {
    if (!p.y.set || p.gate_fn != gate::sigmoid || p.average.set || p.lse.set || state.set) return;
    ready_ = this->reads_.add(p.q, p.grid, tiles, 1) && y_.add(p.y, p.grid, tiles, 1);
    if (!ready_) {
      this->reads_.clear();
      return;
    }
    around_ = lane_field<C>(p.y, p.grid, tiles.at[0], 1).goes_around(p);
    if (!around_) this->writes_ = y_;
  }

  bool finish(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
              const outside_sums<C>& outside, const C* c, kept_keys<C>*) const override {
    const window_lines<C>& q = this->reads_;
    return ready_ && finish_gated_rows<C>(r1 - r0, cs, rs, outside, c, q.at(0, i, r0), q.step(0), y_.at(0, i, r0),
                                          y_.step(0), around_);
  }

 private:
  window_lines<C> y_;
  bool ready_ = false, around_ = false;
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
