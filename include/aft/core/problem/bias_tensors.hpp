// SPDX-License-Identifier: Apache-2.0
/// @file problem/bias_tensors.hpp  The tensors of the gradient of a packed call's bias, whatever its kind, and how much
/// of them a sequence has.
#pragma once

#include <array>

#include "problem.hpp"

namespace aft {
inline namespace AFT_ISA {

/// One tensor of the gradient of a bias: (heads, rows, columns).
struct bias_tensor {
  matrix to{};
  index_t heads = 0, rows = 0, columns = 0;
  /// Whether a sequence has a row for each of its queries or of its keys, and a column for each key; else it has all.
  bool by_queries = false, by_keys = false, columns_by_keys = false;

  index_t rows_of(index_t queries, index_t keys) const { return by_queries ? queries : (by_keys ? keys : rows); }
  index_t columns_of(index_t keys) const { return columns_by_keys ? keys : columns; }
  index_t elements(index_t queries, index_t keys) const { return heads * rows_of(queries, keys) * columns_of(keys); }
  std::byte* at(index_t h, index_t r, index_t c) const {
    return to.data + (h * to.sh + r * to.sr + c * to.sc) * size_of(to.type);
  }
};

/// Those that there are, at most two.
struct bias_tensors {
  std::array<bias_tensor, 2> all{};
  index_t count = 0;

  explicit bias_tensors(const backward_problem& p) {
    const bias_ref& d = p.dbias;
    const index_t rows = p.packed->bias_rows, columns = p.packed->bias_columns;
    switch (d.kind) {
      case bias_kind::none:
      case bias_kind::generated: break;
      case bias_kind::dense: add({d.w, d.heads, rows, columns, true, false, true}); break;
      case bias_kind::banded: add({d.w, d.heads, rows, columns, true, false, false}); break;
      case bias_kind::factorized:
        add({d.u, d.u_heads, rows, d.rank, true, false, false});
        add({d.v, d.v_heads, columns, d.rank, false, true, false});
        break;
      case bias_kind::filter:
        add({{d.r, d.r_type, d.r_set, 0, d.r_sh, 0, d.r_sj[2]}, d.heads, 1, p.taps[2], false, false, false});
        break;
      case bias_kind::sparse:
        // Strides of 0 are of sums over heads or taps.
        add({{d.r, d.r_type, d.r_set, 0, d.r_sh, 0, d.r_sj[2]},
             d.r_sh == 0 ? 1 : d.heads,
             1,
             d.r_sj[2] == 0 ? 1 : p.bias.taps.count,
             false,
             false,
             false});
        break;
    }
  }

  index_t elements(index_t queries, index_t keys) const {
    index_t sum = 0;
    for (index_t i = 0; i < count; ++i) sum += all[static_cast<std::size_t>(i)].elements(queries, keys);
    return sum;
  }
  const bias_tensor& operator[](index_t i) const { return all[static_cast<std::size_t>(i)]; }

 private:
  void add(const bias_tensor& t) {
    if (t.to.set) all[static_cast<std::size_t>(count++)] = t;
  }
};

/// Lets the gradient of one sequence's bias be written in row-major order from `at` on, one tensor behind the other.
template <class C>
void store_row_major(bias_ref& d, const bias_tensors& tensors, index_t queries, index_t keys, C* at) {
  index_t i = 0;
  const auto place = [&](matrix& m) {
    const bias_tensor& t = tensors[i++];
    const index_t rows = t.rows_of(queries, keys), columns = t.columns_of(keys);
    m = {reinterpret_cast<std::byte*>(at), dtype_of<C>, true, 0, t.heads > 1 ? rows * columns : 0, columns, 1};
    if (at != nullptr) at += t.elements(queries, keys);  // of a trial there is no memory
  };
  for (matrix* m : {&d.w, &d.u, &d.v})
    if (m->set) place(*m);
  if (!d.r_set) return;
  matrix filter;
  place(filter);
  d.r = filter.data;
  d.r_type = filter.type;
  d.r_sh = filter.sh;
  d.r_sj[2] = d.kind == bias_kind::sparse && d.r_sj[2] == 0 ? 0 : 1;
}

}  // namespace AFT_ISA
}  // namespace aft
