// SPDX-License-Identifier: Apache-2.0
/// @file call/near_problem.hpp  This rank's rows and its near keys as a problem for the operator's own kernels.
#pragma once

#include "../exchange/bias_part.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Where the kernels' keys and queries stand. Far keys are one more key, the stand-in: its key is the largest of
/// theirs, its value their average. It stands before the near keys, or behind them where none comes before, so that no
/// window and no filter reaches it. On a grid it is one cell of a plane of its own.
struct placement {
  bool stand_in = false, front = false;
  index_t base = 0;     ///< index of the whole at which the kernels' keys begin
  index_t keys = 0;     ///< cells of them
  index_t queries = 0;  ///< cells; on a grid they are those of the keys
  index_t first_row = 0;
  index_t first_query = 0;
  std::array<index_t, 3> grid{1, 1, 1};

  /// Rows that are some of the rank's own, on keys from `base_` on.
  placement(index_t base_, index_t keys_, index_t first_query_, index_t queries_)
      : base(base_), keys(keys_), queries(queries_), first_query(first_query_), grid{1, 1, queries_} {}
  explicit placement(const part& x) {
    stand_in = x.has_stand_in();
    front = stand_in && x.near_keys().first > 0;
    base = x.near_keys().first - index_t{front};
    const index_t planes = x.near_keys().count() + index_t{stand_in};
    keys = planes * x.inner;
    first_query = x.queries().first - base;
    queries = x.queries().count();
    grid = {1, 1, queries};
    if (!x.grid) return;
    queries = keys;
    first_row = first_query * x.inner;
    grid = x.local.grid;
    grid[x.call->v.view.rank() == 5 ? 0 : 1] = planes;
  }

  /// The cell of the stand-in, the first of its plane.
  index_t stand_in_cell(const part& x) const { return front ? 0 : keys - x.inner; }
};

/// Geometry of the call on the kernels' rows and keys; tensors are left as they are.
template <class Problem>
void place_rows(const part& x, const placement& at, Problem& p, moved_rows& moved) {
  const checks::call& c = *x.call;
  p.Tq = at.queries;
  p.Tk = at.keys;
  p.grid = at.grid;
  place_bias(x, p.bias, at.base, moved);
  if (x.grid) return;
  if (c.windowed) place_window(p, {true, c.win.before, c.win.after}, at.first_query, c.bias.kind == bias_kind::banded);
  // Where queries begin before the keys, no row is causal.
  place_diagonal(p, c.opt->causal, max_of(at.first_query, index_t{0}));
  if (c.bias.kind == bias_kind::filter) place_filter(p, at.first_query);
}

/// Keys of a block as a tensor.
inline field keys_of(const part& x, const key_block& from) {
  const index_t n = from.range.count();
  return contiguous(from.k.data, x.local.k.type, {1, 1, n}, n, x.local.hk);
}
inline field values_of(const part& x, const key_block& from) {
  const index_t n = from.range.count();
  return contiguous(from.v.data, x.local.v.type, {1, 1, n}, n, x.local.d);
}

/// Keys as they came, for a call without a stand-in on a sequence: the operator's call with its own options.
template <class Problem>
void set_keys(const placement& at, const field& k, const field& v, Problem& p) {
  p.k = k;
  p.v = v;
  p.lengths.less = at.base;
  if (p.mask != nullptr) p.mask += at.base * p.mask_ss;
}

/// Makes p the call of some of its batch elements. Not for a generated bias.
inline void take_batches(problem& p, const positions& some) {
  const index_t b = some.first;
  for (field* f : {&p.q, &p.k, &p.v, &p.y, &p.lse, &p.average})
    if (f->set) f->data += b * f->sb * size_of(f->type);
  if (p.bias.batch > 1 && p.bias.w.set) {
    p.bias.w.data += b * p.bias.w.sb * size_of(p.bias.w.type);
    p.bias.batch = some.count();
  }
  if (p.mask != nullptr) p.mask += b * p.mask_sb;
  for (length_list* n : {&p.lengths, &p.query_lengths})
    if (n->data != nullptr) n->data += b * n->step;
  p.B = some.count();
}

/// Copies of a rank's operands in the arithmetic type, with the stand-in among the keys. Channels come in pairs then: a
/// value, and what tells the stand-in's weight.
template <class C>
class staged_operands {
 public:
  staged_operands(const part& x, const placement& at) : x_(&x), at_(&at), pairs(at.stand_in ? 2 : 1) {
    const problem& p = x.local;
    k = {x.kernel_memory, p.B * at.keys * p.hk};
    v = {x.kernel_memory, p.B * at.keys * p.d * pairs};
    if (p.gate_fn != gate::none) q = {x.kernel_memory, p.B * at.queries * p.d * pairs};
    average = {x.memory, at.stand_in ? p.B * p.d : 0};
    more = {x.memory, at.stand_in ? p.B * p.d : 0};
    if (p.pair_mask()) mask = {x.kernel_memory, masks() * at.queries * at.keys};
  }

 private:
  const part* x_;
  const placement* at_;

 public:
  index_t pairs;              ///< 2 with a stand-in
  buffer<C> k, v, q;          ///< (B, cells, channels)
  buffer<double> average;     ///< (B, d) of the far keys, as v holds it
  buffer<double> more;        ///< (B, d): the far keys' den without the stand-in's 1
  buffer<std::uint8_t> mask;  ///< (B or 1, queries, keys) of a grid

  /// Fills all of them but `probe`, the second channel of the stand-in's value.
  void fill(const row_block& near_k, const row_block& near_v, const far_sum* far_part) const {
    const problem& p = x_->local;
    const index_t shift = at_->base * x_->inner;
    for (index_t b = 0; b < p.B; ++b) {
      for (index_t s = 0; s < at_->keys; ++s) {
        C* const key = k.data() + (b * at_->keys + s) * p.hk;
        C* const value = v.data() + (b * at_->keys + s) * p.d * pairs;
        const index_t of_whole = s + shift;
        const bool is_near = of_whole >= near_k.first && of_whole < near_k.first + near_k.cells;
        for (index_t c = 0; c < p.d * pairs; ++c) value[c] = C(0);
        if (!is_near || x_->hides(b, of_whole)) {
          for (index_t c = 0; c < p.hk; ++c) key[c] = -std::numeric_limits<C>::infinity();
          continue;
        }
        load_row(near_k.row(b, of_whole), p.k.type, 1, p.hk, key);
        load_row(near_v.row(b, of_whole), p.v.type, 1, p.d, value, pairs);
      }
    }
    if (far_part != nullptr) set_stand_in(*far_part);
    if (mask.size() > 0) fill_mask();
  }

  /// q of the rank's own rows, 0 in rows of padding and in those that are no one's.
  void fill_queries() const {
    const problem& p = x_->local;
    if (p.gate_fn == gate::none) return;
    q.fill(C(0));
    for_each_row([&](index_t b, index_t t, index_t row) {
      if (x_->pads(b, t)) return;
      for (index_t i = 0; i < pairs; ++i)
        load_row(row_at(p.q, p.grid, b, t), p.q.type, p.q.sc, p.d, q.data() + row * p.d * pairs + i, pairs);
    });
  }

  /// What the stand-in's value has in the second channel of (b, c).
  template <class F>
  void set_probe(const F& of) const {
    const problem& p = x_->local;
    if (pairs == 1) return;
    const index_t cell = at_->stand_in_cell(*x_);
    for (index_t b = 0; b < p.B; ++b)
      for (index_t c = 0; c < p.d; ++c) v[((b * at_->keys + cell) * p.d + c) * 2 + 1] = of(b * p.d + c);
  }

  /// f(b, t, row) for this rank's rows; `row` counts through the kernels' rows of all batch elements.
  template <class F>
  void for_each_row(const F& f) const {
    const index_t own = x_->queries().count() * x_->inner;
    for (index_t b = 0; b < x_->local.B; ++b)
      for (index_t t = 0; t < own; ++t) f(b, t, b * at_->queries + at_->first_row + t);
  }

  /// Makes p a call on the copies. Its gate and what it has for results are left to the caller.
  template <class Problem>
  void set_operands(Problem& p) const {
    const std::array<index_t, 3> keys = x_->grid ? at_->grid : std::array<index_t, 3>{1, 1, at_->keys};
    const index_t hk = p.hk, d = p.d * pairs;
    p.d = d;
    p.narrow_products = false;
    p.k = contiguous(k.data(), dtype_of<C>, keys, at_->keys, hk);
    p.v = contiguous(v.data(), dtype_of<C>, keys, at_->keys, d);
    p.q = q.size() > 0 ? contiguous(q.data(), dtype_of<C>, at_->grid, at_->queries, d) : field{};
    p.y = p.lse = p.average = field{};
    // Hidden keys are -inf, and rows of padding are left out of what is made of the results.
    p.lengths = p.query_lengths = length_list{};
    p.mask = mask.size() > 0 ? reinterpret_cast<const std::byte*>(mask.data()) : nullptr;
    p.mask_sb = masks() > 1 ? at_->queries * at_->keys : 0;
    p.mask_st = mask.size() > 0 ? at_->keys : 0;
    p.mask_ss = mask.size() > 0 ? 1 : 0;
  }

 private:
  index_t masks() const { return x_->local.mask_sb != 0 ? x_->local.B : 1; }

  void set_stand_in(const far_sum& far_part) const {
    const problem& p = x_->local;
    const index_t cell = at_->stand_in_cell(*x_), group = p.hk > 0 ? p.d / p.hk : 0;
    for (index_t b = 0; b < p.B; ++b) {
      for (index_t c = 0; c < p.hk; ++c) {
        k[(b * at_->keys + cell) * p.hk + c] = static_cast<C>(far_part.max[b * p.hk + c]);
      }
      for (index_t c = 0; c < p.d; ++c) {
        const double den = far_part.den[b * p.hk + c / group];
        const C x = den == 0 ? C(0) : static_cast<C>(far_part.average[b * p.d + c]);
        v[((b * at_->keys + cell) * p.d + c) * 2] = x;
        average[b * p.d + c] = static_cast<double>(x);
        more[b * p.d + c] = den == 0 ? 0 : den - 1;
      }
    }
  }

  /// Rows that are no one's see nothing.
  void fill_mask() const {
    const problem& p = x_->local;
    mask.fill(0);
    const index_t own = x_->queries().count() * x_->inner;
    for (index_t b = 0; b < masks(); ++b)
      for (index_t t = 0; t < own; ++t)
        for (index_t s = 0; s < at_->keys; ++s)
          mask[(b * at_->queries + at_->first_row + t) * at_->keys + s] = p.mask_hides(b, t, s) ? 0 : 1;
  }
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
