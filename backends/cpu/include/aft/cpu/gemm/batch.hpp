// SPDX-License-Identifier: Apache-2.0
/// @file gemm/batch.hpp  Which (head, batch element) need a bias of their own, and the lanes that share it.
#pragma once

#include "bias_rows.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Without a batch axis in bias or per-query mask, the weights of a head serve the whole batch: one batch item a head,
/// its columns all (b, c) of that head. Otherwise one batch item for each head and batch element.
template <class C>
class bias_batch {
 public:
  struct batch_item {
    index_t h, b;
  };

  explicit bias_batch(const problem& p)
      : p_(&p), batched_(p.B > 1 && (p.bias.batch > 1 || (p.pair_mask() && p.mask_sb != 0))), dh_(p.d / p.bias.heads) {
    // Lanes that cross a batch element are gathered one by one: worth it only where a head is narrow.
    const index_t columns = batched_ ? dh_ : dh_ * p.B;
    flat_ = dh_ % lanes<C> == 0 || dh_ < 4 * lanes<C>;
    per_batch_ = ceil_div(dh_, lanes<C>);
    tiles_ = flat_ ? ceil_div(columns, lanes<C>) : per_batch_ * (batched_ ? 1 : p.B);
  }

  bool batched() const { return batched_; }
  index_t count() const { return p_->bias.heads * (batched_ ? p_->B : 1); }
  index_t tiles() const { return tiles_; }
  /// Tiles of one batch element, which lie side by side.
  index_t run() const { return per_batch_; }
  batch_item at(index_t i) const {
    return batched_ ? batch_item{i % p_->bias.heads, i / p_->bias.heads} : batch_item{i, 0};
  }
  lane_tile<C> tile(const batch_item& which, index_t i) const {
    const index_t c0 = which.h * dh_;
    if (flat_) return make_lane_tile<C>(which.b, c0, dh_, i * lanes<C>, batched_ ? dh_ : dh_ * p_->B);
    return make_lane_tile<C>(which.b + i / per_batch_, c0, dh_, i % per_batch_ * lanes<C>, dh_);
  }

 private:
  const problem* p_;
  bool batched_;
  index_t dh_;
  bool flat_;
  index_t per_batch_;
  index_t tiles_;
};

/// Runs body(batch item, thread): in turn when all threads work on one batch item, else one batch item a thread.
template <class C, class Body>
inline void for_each_batch_item(const fold_plan<C>& plan, index_t count, const Body& body) {
  parallel_for(count, plan.by_batch_item ? plan.threads : 1, body);
}

/// Copies the members of a factorized bias into the two layouts that pair_weights reads: by queries rows of w are
/// wanted, by keys its columns.
template <class C>
AFT_COMPILE_ONCE inline staged_factors<C> stage_factors(const problem& p, scratch& memory, bool by_queries,
                                                        bool by_keys) {
  staged_factors<C> staged;
  if (p.bias.kind != bias_kind::factorized) return staged;
  constexpr index_t width = staged_factors<C>::width;
  const index_t n = p.bias.rank;
  const auto plain = [&](const matrix& m, index_t T) {
    C* const out = memory.take<C>(p.bias.heads * T * n);
    for (index_t h = 0; h < p.bias.heads; ++h)
      for (index_t t = 0; t < T; ++t)
        read_strided(m.type, m.data + (h * m.sh + t * m.sr) * size_of(m.type), m.sc, n, out + (h * T + t) * n);
    return out;
  };
  const auto blocked = [&](const C* from, index_t T) {
    const index_t blocks = staged_factors<C>::blocks(T);
    C* const out = memory.take<C>(p.bias.heads * blocks * n * width);
    for (index_t h = 0; h < p.bias.heads; ++h)
      for (index_t t = 0; t < blocks * width; ++t)
        for (index_t i = 0; i < n; ++i)
          out[((h * blocks + t / width) * n + i) * width + t % width] = t < T ? from[(h * T + t) * n + i] : C(0);
    return out;
  };
  staged.u = plain(p.bias.u, p.Tq);
  staged.v = plain(p.bias.v, p.Tk);
  if (by_queries) staged.v_blocked = blocked(staged.v, p.Tk);
  if (by_keys) staged.u_blocked = blocked(staged.u, p.Tq);
  return staged;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
