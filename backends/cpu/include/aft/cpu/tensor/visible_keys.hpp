// SPDX-License-Identifier: Apache-2.0
/// @file tensor/visible_keys.hpp  Keys as the rows of a call see them: those that no row sees have k = -inf.
#pragma once

#include <limits>

#include "stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Whether hide_keys has anything to do.
inline bool hides_keys(const problem& p) {
  return p.lengths.data != nullptr || (p.mask != nullptr && !p.pair_mask());
}

/// hide_keys where there is something to hide; out of line, since every kernel asks for it.
template <class C>
AFT_COMPILE_ONCE inline void hide_masked_keys(const problem& p, const lane_tile<C>& tile, index_t s0, index_t s1, C* k,
                                              index_t step) {
  for (index_t l = 0; l < tile.count; ++l) {
    const index_t limit = p.key_limit(tile.b[l]);
    const bool masked = p.mask != nullptr && !p.pair_mask();
    for (index_t s = s0; s < s1; ++s) {
      if (s >= limit || (masked && p.mask_hides(tile.b[l], 0, s)))
        k[(s - s0) * step + l] = -std::numeric_limits<C>::infinity();
    }
  }
}

/// Sets k to -inf in a staged block where key_lengths or a mask that holds for all queries hides the key. From then
/// on one test, k == -inf, says that a key is hidden. Keys lie `step` elements apart.
template <class C>
inline void hide_keys(const problem& p, const lane_tile<C>& tile, index_t s0, index_t s1, C* k,
                      index_t step = lanes<C>) {
  if (hides_keys(p)) hide_masked_keys<C>(p, tile, s0, s1, k, step);
}

/// Keys and values of a lane tile, for whoever walks them with hidden ones marked.
template <class C>
class key_reader {
 public:
  key_reader(const problem& p, const lane_tile<C>& tile)
      : p_(p), tile_(tile), keys_(p.k, p.grid, tile, p.d / p.hk), values_(p.v, p.grid, tile, 1) {}

  /// k and v of keys [s0, s1); hidden keys and idle lanes have k = -inf.
  AFT_COMPILE_ONCE void read(index_t s0, index_t s1, C* k, C* v) const {
    keys_.read(s0, s1, k, -std::numeric_limits<C>::infinity());
    values_.read(s0, s1, v);
    hide_keys(p_, tile_, s0, s1, k);
  }
  [[gnu::always_inline]] void prefetch(index_t s0, index_t s1) const {
    keys_.prefetch(s0, s1, p_.Tk);
    values_.prefetch(s0, s1, p_.Tk);
  }

 private:
  const problem& p_;
  const lane_tile<C>& tile_;
  lane_field<C> keys_, values_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
