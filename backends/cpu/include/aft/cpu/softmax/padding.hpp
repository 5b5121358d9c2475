// SPDX-License-Identifier: Apache-2.0
/// @file softmax/padding.hpp  Rows of queries that are padding: what they are given, and how gradients leave them out.
///
/// Forward, such rows are computed like any other and then overwritten: no row has a say in another's result, and
/// lanes of one vector belong to several batch elements, whose sequences end at different places. Backward, every
/// engine leaves out rows that see no key, so that is what padding is made to look like.
#pragma once

#include <algorithm>
#include <limits>

#include "../runtime/arena.hpp"
#include "../runtime/parallel.hpp"
#include "../tensor/stage.hpp"
#include "row_state.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Calls f(t0, t1) for the rows of batch element b that are padding.
template <class F>
inline void for_padding(const problem& p, index_t b, const F& f) {
  if (p.asked_first > 0) f(index_t{0}, p.asked_first);
  if (const index_t last = p.query_limit(b); last < p.Tq) f(last, p.Tq);
}

/// Channels of rows [t0, t1) of batch element b, all of one value.
template <class C>
inline void fill_rows(const field& to, const std::array<index_t, 3>& grid, index_t b, index_t t0, index_t t1,
                      index_t channels, C value) {
  constexpr index_t most = 64;
  C line[most];
  std::fill_n(line, most, value);
  const index_t size = size_of(to.type);
  for (index_t t = t0; t < t1; ++t) {
    std::byte* const row = to.data + (b * to.sb + position_offset(to, grid, t)) * size;
    for (index_t c = 0; c < channels; c += most)
      write_strided<C>(to.type, row + c * to.sc * size, to.sc, min_of(most, channels - c), line);
  }
}

/// y = 0, average 0 and lse -inf for the padding of a forward call, whatever stands there.
template <class C>
AFT_COMPILE_ONCE inline void write_padding(const problem& p, const cpu& exec) {
  parallel_for(p.B, thread_count(exec), [&](index_t b, int) {
    for_padding(p, b, [&](index_t t0, index_t t1) {
      if (p.y.set) fill_rows<C>(p.y, p.grid, b, t0, t1, p.d, C(0));
      if (p.average.set) fill_rows<C>(p.average, p.grid, b, t0, t1, p.d, C(0));
      if (p.lse.set) fill_rows<C>(p.lse, p.grid, b, t0, t1, p.hk, -std::numeric_limits<C>::infinity());
    });
  });
}

/// dq = 0 for it.
template <class C>
AFT_COMPILE_ONCE inline void write_padding_gradient(const backward_problem& p, const cpu& exec) {
  if (!p.dq.set) return;
  parallel_for(p.B, thread_count(exec), [&](index_t b, int) {
    for_padding(p, b, [&](index_t t0, index_t t1) { fill_rows<C>(p.dq, p.grid, b, t0, t1, p.d, C(0)); });
  });
}

/// Marks padding in the state of a call's rows as rows that see no key.
template <class C>
AFT_COMPILE_ONCE inline void empty_padding(const problem& p, const row_state& state) {
  const std::array<index_t, 3> flat{1, 1, p.Tq};
  for (index_t b = 0; b < p.B; ++b) {
    for_padding(p, b,
                [&](index_t t0, index_t t1) { fill_rows<C>(state.inverse, flat, b, t0, t1, state_channels(p), C(0)); });
  }
}

/// The same for rows [t0, t1) of a lane tile, of which inverse[0] is the first number.
template <class C>
AFT_COMPILE_ONCE inline void empty_padding(const problem& p, const lane_tile<C>& tile, index_t t0, index_t t1,
                                           C* inverse) {
  for (index_t l = 0; l < tile.count; ++l) {
    for_padding(p, tile.b[l], [&](index_t first, index_t last) {
      for (index_t t = max_of(first, t0); t < min_of(last, t1); ++t) inverse[(t - t0) * lanes<C> + l] = C(0);
    });
  }
}

/// The lse that a backward call was given, with -inf where rows are padding.
template <class C>
AFT_COMPILE_ONCE inline field without_padding(const problem& p, const cpu& exec, scratch& memory) {
  field to = scratch_field<C>(memory, p.B, p.Tq, p.hk);
  to.sx = {p.grid[1] * p.grid[2] * p.hk, p.grid[2] * p.hk, p.hk};
  parallel_for(p.B, thread_count(exec), [&](index_t b, int) {
    for (index_t t = 0; t < p.Tq; ++t) {
      const index_t from = b * p.lse.sb + position_offset(p.lse, p.grid, t);
      C* const row = reinterpret_cast<C*>(to.data) + (b * p.Tq + t) * p.hk;
      read_strided<C>(p.lse.type, p.lse.data + from * size_of(p.lse.type), p.lse.sc, p.hk, row);
    }
    for_padding(p, b, [&](index_t t0, index_t t1) {
      fill_rows<C>(to, p.grid, b, t0, t1, p.hk, -std::numeric_limits<C>::infinity());
    });
  });
  return to;
}

/// Batch elements [b, b + count) of a call, of which `rows` rows each are no padding.
inline void take_batches(problem& p, index_t b, index_t count, index_t rows) {
  for (field* f : {&p.q, &p.k, &p.v, &p.y, &p.lse, &p.average})
    if (f->set) f->data += b * f->sb * size_of(f->type);
  if (p.mask != nullptr) p.mask += b * p.mask_sb;
  if (p.lengths.data != nullptr) p.lengths.data += b * p.lengths.step;
  p.afar = p.afar.from(b, p.hk, p.d);
  p.query_lengths = {};
  p.B = count;
  p.Tq = rows;
  p.grid = {1, 1, rows};
}
inline void take_batches(backward_problem& p, index_t b, index_t count, index_t rows) {
  for (field* f : {&p.dy, &p.dq, &p.dk, &p.dv})
    if (f->set) f->data += b * f->sb * size_of(f->type);
  take_batches(static_cast<problem&>(p), b, count, rows);
}

/// Runs a call on sequences without a bias for the batch elements of one length after the other, which have nothing in
/// common: rows of padding are then not even looked at. f(part) for each.
template <class Problem, class F>
inline void for_each_length(const Problem& p, const F& f) {
  for (index_t b = 0; b < p.B;) {
    const index_t rows = p.query_limit(b);
    index_t end = b + 1;
    while (end < p.B && p.query_limit(end) == rows) ++end;
    Problem part = p;
    take_batches(part, b, end - b, rows);
    f(part);
    b = end;
  }
}

/// The same for run(part, exec), in memory for the part that takes most: all of it is there before the first one
/// writes.
template <class Problem, class F>
inline void run_each_length(const Problem& p, const cpu& given, const F& run) {
  std::pmr::memory_resource* const from = given.memory != nullptr ? given.memory : std::pmr::new_delete_resource();
  const int threads = thread_count(given);
  std::size_t most = 0;
  for_each_length(p, [&](const Problem& part) {
    arena counter(nullptr, 0, from);
    run(part, trial_of(cpu{0, &counter}, threads));
    most = max_of(most, counter.peak());
  });
  scratch memory(given);
  std::byte* const room = memory.take<std::byte>(static_cast<index_t>(most));
  if (is_trial(given)) return;
  arena own(room, most, from);
  for_each_length(p, [&](const Problem& part) { run(part, cpu{threads, &own}); });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
