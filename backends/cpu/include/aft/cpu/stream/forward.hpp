// SPDX-License-Identifier: Apache-2.0
/// @file stream/forward.hpp  A call that goes on from slots: positions in
/// order, for a slot and a block of channels each.
#pragma once

#include <aft/core/stream/slot_header.hpp>

#include "../runtime/parallel.hpp"
#include "../softmax/padding.hpp"
#include "worker.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// How a call's channels are dealt out.
template <class C>
struct channel_blocks {
  index_t width = 0, count = 0;

  /// Blocks end where 64 bytes do, in slots and, where heads do too, everywhere
  /// else: no vector has two threads' channels. 128 channels of a window of 32
  /// stay in the first-level cache while a chunk of positions goes by; a fold
  /// alone takes whole rows, which the hardware reads ahead (4096 x 512 in
  /// calls of 512: 0.8 of the time of blocks of 128), and full halves, since
  /// each block forms the weights again (0.9 of the time; Ice Lake, 2026-11).
  channel_blocks(const problem& p, index_t elements, int threads) {
    width = p.d;
    // A generated row is asked for once, not for each block.
    const bool whole = p.bias.kind == bias_kind::generated || (p.bias.heads > 1 && p.d / p.bias.heads % 16 != 0);
    const checks::slot_layout layout = p.stream->spec.layout();
    const index_t most = layout.kept == 0 ? 512 : layout.fold == 0 ? 256 : 128;
    if (!whole && p.Tq > 1) width = min_of(width, most);
    if (!whole && elements < threads)
      width = min_of(width, round_up(ceil_div(p.d, static_cast<index_t>(threads)), index_t{64}));
    count = width == 0 ? 0 : ceil_div(p.d, width);
  }
};

/// Multiply-adds, about, as backend.hpp counts them.
inline double stream_work(const problem& p, index_t reach) {
  return static_cast<double>(p.B) * static_cast<double>(p.d) * static_cast<double>(p.Tq) *
         (3 * static_cast<double>(reach) + 64);
}

/// All four operators: p.stream is given. Slots are written by the threads that
/// own their channels; headers last.
template <class C>
AFT_COMPILE_ONCE inline void stream_forward(const problem& p, const cpu& given) {
  const stream_ref& s = *p.stream;
  const auto position_of = [&](index_t b) {
    return checks::slot_header::read(s.data + s.slot(b) * s.spec.bytes()).position;
  };
  const index_t all = p.elements();
  index_t furthest = 0, elements = 0;
  for (index_t b = 0; b < all; ++b) {
    if (s.slot(b) < 0) continue;
    ++elements;
    furthest = max_of(furthest, position_of(b) + p.element_rows(b));
  }
  const index_t reach = min_of(s.spec.layout().kept, furthest);
  const cpu exec = limit_threads(given, stream_work(p, reach));
  const channel_blocks<C> blocks(p, elements, exec.threads);
  scratch memory(exec);
  const per_thread<C> buffers = memory.take_each<C>(stream_worker<C>::room(p, blocks.width, reach), exec.threads);
  parallel_for(all * blocks.count, exec.threads, item_order::runs, [&](index_t item, int thread) {
    const index_t b = item / blocks.count, c0 = item % blocks.count * blocks.width;
    if (s.slot(b) < 0) return;
    stream_worker<C> worker(p, buffers.of(thread), blocks.width, reach);
    const index_t following = p.Tq == 1 && blocks.count == 1 && b + 1 < all ? s.slot(b + 1) : -1;
    worker.run(b, position_of(b), c0, min_of(p.d, c0 + blocks.width), following);
  });
  const std::uint64_t spec = checks::digest_of(s.spec);
  for (index_t b = 0; b < all; ++b) {
    if (s.slot(b) < 0) continue;
    if (p.packed == nullptr)
      for_padding(p, b, [&](index_t t0, index_t t1) {
        fill_rows<C>(p.y, p.grid, b, t0, t1, p.d, C(0));
        if (p.average.set) fill_rows<C>(p.average, p.grid, b, t0, t1, p.d, C(0));
        if (p.lse.set) fill_rows<C>(p.lse, p.grid, b, t0, t1, p.hk, -std::numeric_limits<C>::infinity());
      });
    if (const index_t rows = p.element_rows(b); rows > 0)
      checks::slot_header::write(s.data + s.slot(b) * s.spec.bytes(), spec, position_of(b) + rows);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
