// SPDX-License-Identifier: Apache-2.0
//
// What the layers need of xsimd. Every row is a whole number of packs: `--dim` is a multiple of
// `row_multiple`, the widest float vector there is, so that no layer needs a tail loop.
#pragma once

#include "common/support/buffer.hpp"

#include <xsimd/xsimd.hpp>

namespace examples {

inline constexpr index_t row_multiple = 16;

template <class Real>
using pack = xsimd::batch<Real>;

template <class Real>
inline constexpr index_t lanes = static_cast<index_t>(pack<Real>::size);

template <class Real>
pack<Real> load(const Real* p) {
  return pack<Real>::load_unaligned(p);
}

template <class Real>
void store(Real* p, const pack<Real>& x) {
  x.store_unaligned(p);
}

/// The sum of all lanes. Both generations of xsimd can store a pack; the name of their own sum differs.
template <class Real>
Real sum_lanes(const pack<Real>& x) {
  alignas(64) Real lane[pack<Real>::size];
  x.store_aligned(lane);
  for (std::size_t width = pack<Real>::size / 2; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

template <class Real>
Real max_lanes(const pack<Real>& x) {
  alignas(64) Real lane[pack<Real>::size];
  x.store_aligned(lane);
  Real top = lane[0];
  for (std::size_t i = 1; i < pack<Real>::size; ++i) top = lane[i] > top ? lane[i] : top;
  return top;
}

inline index_t round_up(index_t n, index_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

template <class Real>
Real dot(const Real* a, const Real* b, index_t n) {
  pack<Real> sum(Real(0));
  for (index_t i = 0; i < n; i += lanes<Real>) sum = xsimd::fma(load(a + i), load(b + i), sum);
  return sum_lanes<Real>(sum);
}

}  // namespace examples
