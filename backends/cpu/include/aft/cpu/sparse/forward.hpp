// SPDX-License-Identifier: Apache-2.0
/// @file sparse/forward.hpp  AFT-conv with a sparse filter: AFT-simple and a few keys a row (AFT Eq. 6, below Eq. 10).
///
/// A row's sums are those of all keys, which rows share or carry on, and exp(w) - 1 times each key that a tap reads.
/// That subtracts where w < 0, so a row is taken so only where the subtracted part is proven small: den keeps three
/// quarters of the shared sum. Where it does not, taps hold more than a quarter of the mass, and since m taps read
/// each key m times that is true of fewer than 4 m rows of a column without causality: those go by the definition.
#pragma once

#include <type_traits>

#include "../runtime/parallel.hpp"
#include "block.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// bias_kind::sparse. O(B (Tq + Tk) d) for what AFT-simple does, and O(B Tq d) for every tap.
template <class C>
void sparse_forward(const problem& p, const cpu& exec) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  const int threads = thread_count(exec);
  const index_t width = sparse_width<C>(p, threads);
  const index_t blocks = ceil_div(p.d, width);
  const int team = static_cast<int>(min_of(threads, p.B * blocks));
  scratch memory(exec);
  sparse_tap* taps_memory = nullptr;
  per_thread<C> rows;
  per_thread<tapped_key> tapped;
  // Rows that see the same keys; of the problem alone, so that bits do not depend on how it is cut.
  const bool storable = !p.causal && !p.excluded && !p.pair_mask() && p.Tk <= most_stored_keys && p.Tq <= 65536;
  per_thread<C> stored;
  per_thread<std::int32_t> runs;
  const auto lay_out = [&](scratch& from) {
    taps_memory = from.take<sparse_tap>(sparse_taps::size(p));
    rows = from.take_each<C>(sparse_workspace<C>::size(p, width), team);
    tapped = from.take_each<tapped_key>(p.bias.taps.count, team);
    if (!storable) return;
    stored = from.take_each<C>(stored_workspace<C>::size(p, width), team);
    runs = from.take_each<std::int32_t>(tap_runs<C>::integers(p, width), team);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  const sparse_taps taps(p, taps_memory);
  taps.fill();
  const bool keeps = storable && !taps.hide();
  const index_t items = p.B * blocks;
  parallel_for(items, team, item_order::runs, [&](index_t item, int thread) {
    const sparse_workspace<C> own(rows.of(thread), tapped.of(thread), p, width);
    visit_storage<C>(
        p.v.type, [&](auto* tag) __attribute__((always_inline)) {
          using T = std::remove_pointer_t<decltype(tag)>;
          const auto block_of = [&](index_t i) {
            const index_t c0 = i % blocks * width;
            return sparse_block<C, T>(p, taps, own, i / blocks, c0, min_of(width, p.d - c0));
          };
          const sparse_block<C, T> block = block_of(item);
          if (!keeps) return block.run();
          const stored_workspace<C> keys(stored.of(thread), p, width);
          tap_runs<C> taps_of_block(runs.of(thread), keys.numbers, p, width);
          if (width % (sparse_vectors * lanes<C>) != 0) {
            block.template run_stored<1>(keys, taps_of_block);
          } else {
            block.template run_stored<sparse_vectors>(keys, taps_of_block);
          }
        });
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
