// SPDX-License-Identifier: Apache-2.0
/// @file sequences.hpp  The sequences of a packed call as calls of their own.
#pragma once

#include "setup.hpp"

namespace aft::test {

inline std::vector<std::int64_t> offsets_of(const std::vector<index_t>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (index_t n : lengths) offsets.push_back(offsets.back() + n);
  return offsets;
}

/// Calls f(place in the tensor of the packed call, place in that of sequence n) for a tensor of a bias.
template <class F>
void for_each_shared(const setup& packed, index_t n, const std::vector<index_t>& whole, const std::vector<index_t>& own,
                     const F& f) {
  index_t count = own.empty() ? 0 : 1;
  for (index_t e : own) count *= e;
  for (index_t i = 0; i < count; ++i) {
    index_t place = 0, step = 1, rest = i;
    for (std::size_t axis = own.size(); axis-- > 0; rest /= own[axis], step *= whole[axis]) {
      const bool batch = axis == 0 && packed.bias == bias_form::dense_bhtt && own.size() == 4;
      place += (batch ? n : rest % own[axis]) * step;
    }
    f(static_cast<std::size_t>(place), static_cast<std::size_t>(i));
  }
}

/// Sequence n of a completed setup.
inline setup sequence_setup(const setup& packed, index_t n) {
  setup s = packed;
  s.Tq = packed.packed[static_cast<std::size_t>(n)];
  s.Tk = packed.key_counts()[static_cast<std::size_t>(n)];
  s.packed.clear();
  s.packed_keys.clear();
  s.spare = 0;
  s.grid = {s.Tk};
  s.queries = s.Tq;
  return s;
}

inline numbers sequence_numbers(const setup& packed, const numbers& x, index_t n) {
  const setup s = sequence_setup(packed, n);
  const auto at = static_cast<std::size_t>(n);
  const index_t t0 = offsets_of(packed.packed)[at], s0 = offsets_of(packed.key_counts())[at];
  const auto rows = [](const std::vector<double>& from, index_t first, index_t count, index_t channels) {
    return std::vector<double>(from.begin() + first * channels, from.begin() + (first + count) * channels);
  };
  numbers own;
  own.q = rows(x.q, t0, s.Tq, s.d);
  own.dy = rows(x.dy, t0, s.Tq, s.d);
  own.k = rows(x.k, s0, s.Tk, s.hk);
  own.v = rows(x.v, s0, s.Tk, s.d);
  own.r = x.r;
  const auto bias = [&](const std::vector<double>& from, const std::vector<index_t>& whole,
                        const std::vector<index_t>& extents) {
    std::vector<double> to;
    for_each_shared(packed, n, whole, extents, [&](std::size_t place, std::size_t) { to.push_back(from[place]); });
    return to;
  };
  own.w = bias(x.w, w_extents(packed), w_extents(s));
  own.u = bias(x.u, u_extents(packed), u_extents(s));
  own.f = bias(x.f, f_extents(packed), f_extents(s));
  return own;
}

}  // namespace aft::test
