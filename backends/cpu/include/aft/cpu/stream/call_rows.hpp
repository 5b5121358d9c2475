// SPDX-License-Identifier: Apache-2.0
/// @file stream/call_rows.hpp  Rows of the call's tensors, channels [c0, c1) of
/// them: where they lie, or through a buffer where they are no vectors of C.
#pragma once

#include <cstring>

#include "../tensor/strided.hpp"
#include "rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Buffers of one row.
template <class C>
struct row_buffers {
  static constexpr index_t lines = 7;
  C *k = nullptr, *shared_k = nullptr, *v = nullptr, *q = nullptr, *y = nullptr, *average = nullptr, *lse = nullptr;

  row_buffers() = default;
  row_buffers(C* at, index_t line)
      : k(at),
        shared_k(k + line),
        v(shared_k + line),
        q(v + line),
        y(q + line),
        average(y + line),
        lse(average + line) {}
};

template <class C>
class call_rows {
 public:
  explicit call_rows(const problem& p) : p_(p) {}

  /// From now on those of batch element or packed sequence b.
  void select(index_t b) {
    b_ = b;
    first_ = p_.packed != nullptr ? p_.packed->queries.at(b) : 0;
  }

  const C* values(index_t t, index_t c0, index_t c1, C* buffer) const { return piece(p_.v, t, c0, c1 - c0, buffer); }
  /// A key for each value channel.
  const C* keys(index_t t, index_t c0, index_t c1, const row_buffers<C>& buffers) const {
    const index_t group = p_.d / p_.hk, n = c1 - c0;
    if (group == 1) return piece(p_.k, t, c0, n, buffers.k);
    const index_t first = c0 / group, last = (c1 - 1) / group + 1;
    const field& f = p_.k;
    read_strided<C>(f.type, place(f, t, first), f.sc, last - first, buffers.shared_k);
    for (index_t i = 0; i < n; ++i) buffers.k[i] = buffers.shared_k[(c0 + i) / group - first];
    return buffers.k;
  }
  /// Where results go at first, and what gates them.
  AFT_INLINE row_results<C> results(index_t t, index_t c0, index_t c1, const row_buffers<C>& buffers) const {
    row_results<C> out;
    out.gate_fn = p_.gate_fn;
    if (p_.gate_fn != gate::none) out.q = piece(p_.q, t, c0, c1 - c0, buffers.q);
    out.y = destination(p_.y, t, c0, c1 - c0, buffers.y);
    if (p_.average.set) out.average = destination(p_.average, t, c0, c1 - c0, buffers.average);
    if (p_.lse.set) out.lse = buffers.lse;
    return out;
  }
  /// From there to the tensors.
  AFT_INLINE void write(index_t t, index_t c0, index_t c1, const row_results<C>& from) const {
    write_field(p_.y, t, c0, c1 - c0, from.y);
    if (p_.average.set) write_field(p_.average, t, c0, c1 - c0, from.average);
    if (p_.lse.set) write_lse(t, c0, c1, from.lse);
  }

 private:
  /// Whether n numbers from some on are whole vectors of C in the caller's
  /// memory.
  bool in_place(const field& f, index_t n) const {
    return f.type == dtype_of<C> && f.sc == 1 && n % lanes<C> == 0 && p_.d / p_.bias.heads % lanes<C> == 0;
  }
  std::byte* place(const field& f, index_t t, index_t c) const {
    const index_t batch = p_.packed != nullptr ? 0 : b_ * f.sb;
    return f.data + (batch + (first_ + t) * f.sx[2] + c * f.sc) * size_of(f.type);
  }
  const C* piece(const field& f, index_t t, index_t c, index_t n, C* buffer) const {
    if (in_place(f, n)) return reinterpret_cast<const C*>(place(f, t, c));
    read_strided<C>(f.type, place(f, t, c), f.sc, n, buffer);
    return buffer;
  }
  C* destination(const field& f, index_t t, index_t c, index_t n, C* buffer) const {
    return in_place(f, n) ? reinterpret_cast<C*>(place(f, t, c)) : buffer;
  }
  void write_field(const field& f, index_t t, index_t c, index_t n, const C* from) const {
    std::byte* const to = place(f, t, c);
    if (to != reinterpret_cast<const std::byte*>(from)) write_strided<C>(f.type, to, f.sc, n, from);
  }
  /// Of value channels that share a key the first one's.
  void write_lse(index_t t, index_t c0, index_t c1, const C* from) const {
    const index_t group = p_.d / p_.hk, size = size_of(p_.lse.type);
    if (group == 1) return write_strided<C>(p_.lse.type, place(p_.lse, t, c0), p_.lse.sc, c1 - c0, from);
    for (index_t c = round_up(c0, group); c < c1; c += group)
      std::memcpy(place(p_.lse, t, c / group), from + (c - c0), static_cast<std::size_t>(size));
  }

  const problem& p_;
  index_t b_ = 0, first_ = 0;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
