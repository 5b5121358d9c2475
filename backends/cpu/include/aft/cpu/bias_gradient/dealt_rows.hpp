// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/dealt_rows.hpp  Rows of dw on their way to the caller's function, which takes them whole.
#pragma once

#include <cstring>

#include "gemm.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The gradient of a generated bias for one head and batch element. Tiles come from any thread and in any order, the
/// caller's function gets rows in theirs: so those of a block wait in a buffer, which is handed out when the block is
/// finished. A part's rows go one after the other, since blocks do and a part is one thread's in each.
template <class C>
class dealt_rows {
 public:
  dealt_rows(const backward_problem& p, const bias_gradient_plan<C>& plan, index_t b, index_t h)
      : p_(&p), plan_(&plan), b_(b), h_(h) {}

  /// Tiles without a visible pair never come, and their pairs have gradient 0.
  void clear(index_t r0, index_t r1) const {
    parallel_for(r1 - r0, plan_->threads, [&](index_t i, int) {
      std::memset(row(i), 0, static_cast<std::size_t>(plan_->row_keys) * sizeof(C));
    });
  }

  /// Takes a tile of the block that begins with row `origin`.
  void add(index_t origin, index_t r0, index_t r1, index_t s0, index_t s1, const C* dw) const {
    const index_t from = max_of(s0, first_key(origin)), to = min_of(s1, first_key(origin) + plan_->row_keys);
    for (index_t t = r0; from < to && t < r1; ++t) {
      std::memcpy(row(t - origin) + (from - first_key(origin)), dw + (t - r0) * tuning<C>::NR + (from - s0),
                  static_cast<std::size_t>(to - from) * sizeof(C));
    }
  }

  /// Neighbouring rows go to different parts: threads share every block, and causal rows of all lengths every part.
  void hand_out(index_t r0, index_t r1) const {
    const backward_problem& p = *p_;
    const generated_rows& to = *p.dbias.rows;
    const index_t before = p.dbias.rows_before + (b_ * p.bias.heads + h_) * p.Tq;
    parallel_for(to.parts, plan_->threads, [&](index_t part, int) {
      const index_t first = r0 + (part + to.parts - (before + r0) % to.parts) % to.parts;
      for (index_t t = first; t < r1; t += to.parts) {
        const index_t s0 = p.win.bounded ? max_of(t - p.win.before, 0) : 0;
        const index_t s1 = p.win.bounded ? min_of(t + p.win.after + 1, p.Tk) : p.Tk;
        if (s0 >= s1) continue;
        to.take(to.f, part, p.dbias.rows_batch + b_, h_, p.dbias.rows_first + t, s0, row(t - r0) + (s0 - first_key(r0)),
                s1 - s0);
      }
    });
  }

 private:
  index_t first_key(index_t r0) const { return p_->win.bounded ? min_of(max_of(r0 - p_->win.before, 0), p_->Tk) : 0; }
  C* row(index_t i) const { return plan_->rows + i * plan_->row_keys; }

  const backward_problem* p_;
  const bias_gradient_plan<C>* plan_;
  index_t b_, h_;
};

/// Where no pair is seen every row is 0.
template <class C>
inline void hand_out_zeros(const backward_problem& p, const bias_gradient_plan<C>& plan) {
  const index_t rows = plan.block * bias_gradient_plan<C>::M;
  for (index_t b = 0; b < p.dbias.batch; ++b)
    for (index_t h = 0; h < p.dbias.heads; ++h) {
      const dealt_rows<C> block(p, plan, b, h);
      for (index_t r0 = 0; r0 < p.Tq; r0 += rows) {
        block.clear(r0, min_of(r0 + rows, p.Tq));
        block.hand_out(r0, min_of(r0 + rows, p.Tq));
      }
    }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
