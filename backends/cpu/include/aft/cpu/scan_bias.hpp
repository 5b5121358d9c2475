// SPDX-License-Identifier: Apache-2.0
/// @file scan_bias.hpp  The gradient of a bias that no pair reads.
#pragma once

#include <aft/core/problem.hpp>

#include "stage.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {
namespace scan {

template <class C>
inline void write_zeros(const matrix& m, index_t batch, index_t heads, index_t rows, index_t columns) {
  if (!m.set) return;
  const C zero = C(0);
  for (index_t b = 0; b < batch; ++b)
    for (index_t h = 0; h < heads; ++h)
      for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < columns; ++c)
          write_strided<C>(m.type, m.data + (b * m.sb + h * m.sh + r * m.sr + c * m.sc) * size_of(m.type), 1, 1, &zero);
}

/// AFT-local with an empty window still has a bias, whose gradient is 0. A banded one has no columns.
template <class C>
inline void zero_bias_gradient(const backward_problem& p) {
  const bias_ref& d = p.dbias;
  if (d.kind == bias_kind::dense) write_zeros<C>(d.w, d.batch, d.heads, p.Tq, p.Tk);
  if (d.kind == bias_kind::factorized) {
    write_zeros<C>(d.u, 1, d.u_heads, p.Tq, d.rank);
    write_zeros<C>(d.v, 1, d.v_heads, p.Tk, d.rank);
  }
}

}  // namespace scan
}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
