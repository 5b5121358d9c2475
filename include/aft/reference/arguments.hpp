// SPDX-License-Identifier: Apache-2.0
/// @file arguments.hpp  Reads the public arguments of a call into plain row-major arrays of the arithmetic type.
///
/// The reference shares no code with the operators it checks: it starts from the views and options themselves, not from
/// the struct that the operators hand to a backend.
#pragma once

#include <aft/core/problem/options.hpp>
#include <aft/core/views/tensor_view.hpp>

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

/// Element b of options.key_lengths or options.query_lengths, (B) of int64 or int32.
inline index_t length_at(const any_view& lengths, index_t b) {
  const index_t at = b * lengths.stride(0);
  return lengths.type() == dtype::i64 ? static_cast<const std::int64_t*>(lengths.data())[at]
                                      : static_cast<const std::int32_t*>(lengths.data())[at];
}

/// Rows from options.query_lengths on are padding: they see nothing and give 0, whatever their q holds.
inline bool is_padding(const options& opt, index_t b, index_t t) {
  return opt.query_lengths && t >= length_at(opt.query_lengths, b);
}

/// Padding, causal order, options.mask (B|1, Tq|1, Tk), (Tq|1, Tk) or (Tk) and options.key_lengths (B), as the contract
/// of `options` states them.
inline visible_function visibility(const options& opt) {
  return [opt](index_t b, index_t t, index_t s) {
    if (is_padding(opt, b, t)) return false;
    if (opt.causal && s > opt.first_query + t) return false;
    if (opt.key_lengths && s >= length_at(opt.key_lengths, b)) return false;
    if (!opt.mask) return true;
    const index_t at[] = {b, t, s};
    index_t offset = 0;
    for (std::size_t axis = 0; axis < opt.mask.rank(); ++axis) {
      const index_t index = at[axis + 3 - opt.mask.rank()];
      offset += opt.mask.extent(axis) == 1 ? 0 : index * opt.mask.stride(axis);
    }
    return static_cast<const std::uint8_t*>(opt.mask.data())[offset] != 0;
  };
}

}  // namespace aft::reference
