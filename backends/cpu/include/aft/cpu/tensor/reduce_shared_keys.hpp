// SPDX-License-Identifier: Apache-2.0
/// @file tensor/reduce_shared_keys.hpp  The gradient of a key channel that several value channels share.
#pragma once

#include <aft/core/problem/problem.hpp>

#include "../runtime/parallel.hpp"
#include "stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// dk[b,s,kc] = the sum over the value channels that share key channel kc, in their order. `per_channel` is a scratch
/// field of p.d channels.
template <class C>
inline void sum_shared_keys(const backward_problem& p, const field& per_channel, const cpu& exec) {
  constexpr index_t segment = 64;  // positions an item: some ten thousand additions
  const index_t group = p.d / p.hk;
  const index_t segments = ceil_div(p.Tk, segment);
  parallel_for(p.B * segments, thread_count(exec), [&](index_t item, int) {
    const index_t b = item / segments;
    const index_t s0 = item % segments * segment;
    for (index_t s = s0; s < s0 + segment && s < p.Tk; ++s) {
      const C* from = reinterpret_cast<const C*>(per_channel.data) + (b * p.Tk + s) * p.d;
      const index_t to = b * p.dk.sb + position_offset(p.dk, p.grid, s);
      for (index_t c = 0; c < p.hk; ++c) {
        C sum = C(0);
        for (index_t i = 0; i < group; ++i) sum += *from++;
        write_strided(p.dk.type, p.dk.data + (to + c * p.dk.sc) * size_of(p.dk.type), 1, 1, &sum);
      }
    }
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
