// SPDX-License-Identifier: Apache-2.0
/// @file arguments.hpp  Reads the public arguments of a call into plain row-major arrays of the arithmetic type.
///
/// The reference shares no code with the operators it checks: it starts from the views and options themselves, not from
/// the struct that the operators hand to a backend.
#pragma once

#include <aft/core/options.hpp>
#include <aft/core/tensor_view.hpp>

#include <functional>
#include <vector>

namespace aft::reference {

/// All elements of a view in row-major order. Real holds every value of a narrower storage type exactly.
template <class Real, class T, std::size_t Rank>
std::vector<Real> flatten(const tensor_view<T, Rank>& x) {
  std::vector<Real> values;
  if (x.size() == 0) return values;
  values.reserve(static_cast<std::size_t>(x.size()));
  std::array<index_t, Rank> at{};
  for (;;) {
    index_t offset = 0;
    for (std::size_t i = 0; i < Rank; ++i) offset += at[i] * x.stride(i);
    values.push_back(static_cast<Real>(x.data()[offset]));
    std::size_t axis = Rank;
    while (axis > 0 && ++at[axis - 1] == x.extent(axis - 1)) at[--axis] = 0;
    if (axis == 0) return values;
  }
}

/// x[b, t, c]. A view of rank 2 is a batch of one; the middle axes of a grid are flattened row-major into t.
template <class Real>
struct sequence {
  index_t B = 1, T = 1, channels = 1;
  std::vector<Real> values;

  const Real& operator()(index_t b, index_t t, index_t c) const {
    return values[static_cast<std::size_t>((b * T + t) * channels + c)];
  }
};

template <class Real, class T, std::size_t Rank>
sequence<Real> read_sequence(const tensor_view<T, Rank>& x) {
  static_assert(Rank >= 2, "a sequence has a time axis and a channel axis");
  sequence<Real> result;
  result.B = Rank == 2 ? 1 : x.extent(0);
  for (std::size_t i = Rank == 2 ? 0 : 1; i + 1 < Rank; ++i) result.T *= x.extent(i);
  result.channels = x.extent(Rank - 1);
  result.values = flatten<Real>(x);
  return result;
}

/// Which keys a query may use, before k = -inf and w = -inf hide more of them.
using visible_function = std::function<bool(index_t b, index_t t, index_t s)>;

/// Causal order, options.mask (B|1, Tq|1, Tk) and options.key_lengths (B), as the contract of `options` states them.
inline visible_function visibility(const options& opt) {
  return [opt](index_t b, index_t t, index_t s) {
    if (opt.causal && s > t) return false;
    if (opt.key_lengths) {
      const auto* length = static_cast<const std::int64_t*>(opt.key_lengths.data());
      if (s >= length[b * opt.key_lengths.stride(0)]) return false;
    }
    if (!opt.mask) return true;
    const auto* mask = static_cast<const std::uint8_t*>(opt.mask.data());
    // Without a batch axis, (Tq|1, Tk), the mask belongs to tensors that have none either.
    const std::size_t query = opt.mask.rank() - 2;
    const index_t mb = query == 0 || opt.mask.extent(0) == 1 ? 0 : b * opt.mask.stride(0);
    const index_t mt = opt.mask.extent(query) == 1 ? 0 : t * opt.mask.stride(query);
    return mask[mb + mt + s * opt.mask.stride(query + 1)] != 0;
  };
}

}  // namespace aft::reference
