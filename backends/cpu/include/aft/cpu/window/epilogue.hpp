// SPDX-License-Identifier: Apache-2.0
/// @file window/epilogue.hpp  Finishes the rows of a window's panel: the common call in one loop from sums to y.
#pragma once

#include "../epilogue/queries.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// y alone, of whole vectors, with the usual gate.
template <class C>
class quick_outputs final : public window_epilogue<C> {
 public:
  [[gnu::noinline]] quick_outputs(const problem& p, const row_state& state, const window_tiles<C>& tiles)
      : window_epilogue<C>(window_lines<C>(p.Tq), p.Tq), y_(p.Tq) {
    if (!p.y.set || p.gate_fn != gate::sigmoid || p.average.set || p.lse.set || state.set) return;
    ready_ = this->reads_.add(p.q, p.grid, tiles, 1) && y_.add(p.y, p.grid, tiles, 1);
    if (!ready_) {
      this->reads_.clear();
      return;
    }
    streamed_ = lane_field<C>(p.y, p.grid, tiles.at[0], 1).streams_tiles(p);
    if (!streamed_) this->writes_ = y_;
  }

  bool epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                const uniform_sums<C>& uniform, const C* c, kept_keys<C>*) const override {
    const window_lines<C>& q = this->reads_;
    return ready_ && gated_rows_epilogue<C>(r1 - r0, cs, with_uniform<C>{rs, uniform}, c, q.at(0, i, r0), q.step(0),
                                            y_.at(0, i, r0), y_.step(0), streamed_);
  }

 private:
  window_lines<C> y_;
  bool ready_ = false, streamed_ = false;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
