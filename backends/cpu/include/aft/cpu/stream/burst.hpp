// SPDX-License-Identifier: Apache-2.0
/// @file stream/burst.hpp  Rows of a call that are taken together, as a prompt
/// brings them: a key and a value are read once for several rows, whose sums
/// stay in registers.
///
/// Sums and their order are those of stream/rows.hpp, row by row. Only rows all
/// of whose numbers are near go this way; it is found out before anything is
/// written, so that the others can go row by row from where they were.
#pragma once

#include "kept.hpp"
#include "rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Rows whose sums are held at a time: as many as have room in registers beside
/// a key, its value and a weight.
template <class C>
inline constexpr index_t rows_together = sizeof(vec<C>) == 64 ? 8 : 4;

/// Positions of one block, and the call's rows of them. Pointers are to the
/// channels of one thread.
template <class C>
struct burst {
  static constexpr index_t most = checks::slot_layout::block;
  index_t position = 0, rows = 0;
  const C *k[most], *v[most];
  row_results<C> out[most];
  /// Of one head. All rows see from their first key to their own.
  row_weights<C> w[most];
  C* scaled[most];  ///< e^w of them, to be changed

  /// y = sigmoid(q) average is all that is wanted.
  bool gates_alone() const {
    return out[0].gate_fn == gate::sigmoid && out[0].average == nullptr && out[0].lse == nullptr;
  }
  /// y takes the place of q, which rows that go one by one after all still need.
  bool in_place() const { return out[0].y == out[0].q; }
};

/// Of a slot's fold the arrays that a position needs; the first two after the reference change.
inline constexpr index_t fold_in_use = per_key_unit + 1;
/// Rows for which a vector of the fold stays in registers.
inline constexpr index_t rows_of_fold = 4;

/// Whether a mask has the first n lanes; the others hold other channels, or
/// anything.
template <class C>
AFT_INLINE bool all_of(const vec_mask<C>& mask, index_t n) {
  if (n >= lanes<C>) return xsimd::all(mask);
  C ones[lanes<C>];
  store(ones, xsimd::select(mask, vec<C>(C(1)), vec<C>(C(0))));
  bool all = true;
  for (index_t l = 0; l < n; ++l) all = all && ones[l] != C(0);
  return all;
}

/// Adds positions [begin, end) of one block to the sums of R rows. Row r sees
/// [first, last] or, where the window `moves` along, [first + r, last + r] with
/// last - first + 1 >= R; it always sees up to last + r. x: e^k and e^k v of
/// `begin` and on.
template <class C, index_t R, bool moves>
AFT_INLINE void add_positions(const C* x, index_t begin, index_t end, const row_weights<C>* w, index_t first,
                              index_t last, vec<C> (&nums)[R], vec<C> (&dens)[R]) {
  constexpr index_t L = lanes<C>;
  const C* weights[R];
  for (index_t r = 0; r < R; ++r) weights[r] = w[r].scaled + (begin - first);
  const auto add = [&](index_t s, index_t from, index_t to) __attribute__((always_inline)) {
    const index_t i = s - begin;
    const vec<C> e = load(x + i * 2 * L), ev = load(x + i * 2 * L + L);
    AFT_UNROLL(8)
    for (index_t r = 0; r < R; ++r) {
      if (r < from || r >= to) continue;
      const vec<C> factor(weights[r][moves ? i - r : i]);
      dens[r] = mul_add(factor, e, dens[r]);
      nums[r] = mul_add(factor, ev, nums[r]);
    }
  };
  const auto inside = [&](index_t s) { return s >= begin && s < end; };
  if constexpr (moves) {
    AFT_UNROLL(8)
    for (index_t i = 0; i < R - 1; ++i)
      if (inside(first + i)) add(first + i, 0, i + 1);
  }
  const index_t stop = min_of(end, last + 1);
  for (index_t s = max_of(begin, moves ? first + R - 1 : first); s < stop; ++s) add(s, 0, R);
  AFT_UNROLL(8)
  for (index_t i = 1; i < R; ++i)
    if (inside(last + i)) add(last + i, i, R);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
