// SPDX-License-Identifier: Apache-2.0
/// @file stencil/calls/moved_filter.hpp  AFT-conv on a sequence whose queries do not stand at the keys' positions, one
/// for one.
///
/// The stencil's queries and keys are the points of one grid. So such a call becomes one on a sequence that holds both,
/// in which only some queries were asked for: their rows are copied to where they stand, and results back. Scratch is
/// O(T d), and the time that of the longer call; the bits are those of the same rows of that call.
#pragma once

#include <algorithm>
#include <limits>

#include "../../softmax/padding.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Whether a convolution's queries are elsewhere than its keys.
inline bool moves_queries(const problem& p) {
  return p.Tq != p.Tk || p.first_query != 0;
}

/// Rows [t, t + n) of `from` become rows [at, at + n) of `to`, for all batch elements.
template <class C>
inline void copy_rows(const field& from, index_t t, const field& to, index_t at, index_t n, index_t B, index_t channels,
                      const cpu& exec) {
  constexpr index_t most = 256;
  parallel_for(B, thread_count(exec), [&](index_t b, int) {
    C line[most];
    const auto place = [&](const field& f, index_t row, index_t c) {
      return f.data + (b * f.sb + row * f.sx[2] + c * f.sc) * size_of(f.type);
    };
    for (index_t i = 0; i < n; ++i) {
      for (index_t c = 0; c < channels; c += most) {
        const index_t count = min_of(most, channels - c);
        read_strided<C>(from.type, place(from, t + i, c), from.sc, count, line);
        write_strided<C>(to.type, place(to, at + i, c), to.sc, count, line);
      }
    }
  });
}

/// The sequence that holds the queries and the keys of a call.
template <class C>
class joint_sequence {
 public:
  joint_sequence(const problem& p, const cpu& exec, scratch& memory)
      : p_(p), exec_(exec), memory_(memory), first_(p.first_query), T_(max_of(p.Tk, p.first_query + p.Tq)) {}

  /// Room for rows of all positions, those that nobody asked for filled with `value`.
  field rows(index_t channels, C value) const {
    const field f = scratch_field<C>(memory_, p_.B, T_, channels);
    std::fill_n(reinterpret_cast<C*>(f.data), p_.B * T_ * channels, value);
    return f;
  }
  /// Room for a result of queries, or of keys, where it is wanted.
  field query_room(const field& f, index_t channels) const { return f.set ? rows(channels, C(0)) : f; }
  field key_room(const field& f, index_t channels) const { return f.set && T_ != p_.Tk ? rows(channels, C(0)) : f; }
  field queries_of(const field& f, index_t channels, C value) const {
    if (!f.set) return f;
    const field to = rows(channels, value);
    copy_rows<C>(f, 0, to, first_, p_.Tq, p_.B, channels, exec_);
    return to;
  }
  field keys_of(const field& f, index_t channels, C value) const {
    if (!f.set || T_ == p_.Tk) return f;
    const field to = rows(channels, value);
    copy_rows<C>(f, 0, to, 0, p_.Tk, p_.B, channels, exec_);
    return to;
  }
  void return_queries(const field& from, const field& to, index_t channels) const {
    if (to.set) copy_rows<C>(from, first_, to, 0, p_.Tq, p_.B, channels, exec_);
  }
  void return_keys(const field& from, const field& to, index_t channels) const {
    if (to.set && T_ != p_.Tk) copy_rows<C>(from, 0, to, 0, p_.Tk, p_.B, channels, exec_);
  }

  /// The call with its queries, keys and values at their places.
  void place(problem& joint) const {
    joint.q = queries_of(p_.q, p_.d, C(0));
    joint.k = keys_of(p_.k, p_.hk, hidden);
    joint.v = keys_of(p_.v, p_.d, C(0));
    if (T_ != p_.Tk) hide_by_mask(joint);
    joint.left[2] += first_;
    joint.first_query = 0;
    joint.Tq = joint.Tk = T_;
    joint.grid = {1, 1, T_};
    joint.all_queries = joint.all_keys = 0;
    joint.asked_first = first_;
    joint.asked_count = p_.Tq;
  }

 private:
  /// A mask has no entries for the keys that were added: it goes into k.
  void hide_by_mask(problem& joint) const {
    if (p_.mask == nullptr) return;
    for (index_t b = 0; b < p_.B; ++b) {
      for (index_t s = 0; s < p_.Tk; ++s) {
        if (p_.mask_hides(b, 0, s)) fill_rows<C>(joint.k, {1, 1, T_}, b, s, s + 1, p_.hk, hidden);
      }
    }
    joint.mask = nullptr;
  }
  static constexpr C hidden = -std::numeric_limits<C>::infinity();

  const problem& p_;
  const cpu& exec_;
  scratch& memory_;
  index_t first_, T_;
};

/// y, lse and average of rows that `run` computes among those of the joint sequence.
template <class C, class Run>
inline void moved_forward(const problem& p, const cpu& exec, const Run& run) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  scratch memory(exec);
  const joint_sequence<C> sequence(p, exec, memory);
  problem joint = p;
  sequence.place(joint);
  joint.y = sequence.query_room(p.y, p.d);
  joint.lse = sequence.query_room(p.lse, p.hk);
  joint.average = sequence.query_room(p.average, p.d);
  run(joint);
  if (is_trial(exec)) return;
  sequence.return_queries(joint.y, p.y, p.d);
  sequence.return_queries(joint.lse, p.lse, p.hk);
  sequence.return_queries(joint.average, p.average, p.d);
}

template <class C, class Run>
inline void moved_backward(const backward_problem& p, const cpu& exec, const Run& run) {
  scratch memory(exec);
  const joint_sequence<C> sequence(p, exec, memory);
  backward_problem joint = p;
  sequence.place(joint);
  // Only both together are read.
  const bool saved = p.lse.set && p.average.set;
  joint.lse = saved ? sequence.queries_of(p.lse, p.hk, -std::numeric_limits<C>::infinity()) : field{};
  joint.average = saved ? sequence.queries_of(p.average, p.d, C(0)) : field{};
  joint.dy = sequence.queries_of(p.dy, p.d, C(0));
  joint.dq = sequence.query_room(p.dq, p.d);
  joint.dk = sequence.key_room(p.dk, p.hk);
  joint.dv = sequence.key_room(p.dv, p.d);
  run(joint);
  if (is_trial(exec)) return;
  sequence.return_queries(joint.dq, p.dq, p.d);
  sequence.return_keys(joint.dk, p.dk, p.hk);
  sequence.return_keys(joint.dv, p.dv, p.d);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
