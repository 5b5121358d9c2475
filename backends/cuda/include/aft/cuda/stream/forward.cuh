// SPDX-License-Identifier: Apache-2.0
/// @file stream/forward.cuh  Calls of aft::simple, aft::local and aft::conv that go on from slots: a block for an
/// element and some of its channels.
///
/// A position changes the fold that the next one starts from, so a channel's positions are one thread's, in their
/// order; threads side by side have channels side by side. aft::full: see full.cuh.
#pragma once

#include "row_sum.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Channels of a block, at most; with fewer of them a call is one launch. Not measured.
inline constexpr int stream_threads = 256;
/// Of a position that there is no room for.
template <class C>
AFT_DEVICE row_result<C> unknown_row() {
  row_result<C> result;
  result.average = result.den = number<C>::nan;
  return result;
}

/// All rows of one channel, of which the first `taken` find room. Of aft::simple nothing is kept but the fold.
template <class C>
AFT_DEVICE void continue_channel(const device_call<C>& p, const device_slots& all_slots, const slot_place& at,
                                 index_t c) {
  const index_t taken = at.taken(all_slots);
  const kept_keys<C> kept(all_slots, at.slot, c);
  slot_fold<C> fold;
  if (taken > 0 && at.position > 0) fold.read(at.slot, all_slots.channels, c);
  const index_t head = c / (p.d / p.bias.heads);
  index_t place = all_slots.kept == 0 ? 0 : at.position % all_slots.kept;
  for (index_t i = 0; i < at.rows; ++i) {
    const index_t t = at.first_row + i;
    row_result<C> result;
    if (i < taken) {
      const index_t position = at.position + i;
      const C key = load_key(p, at.b, t, c);
      const C value = key == -number<C>::infinity ? C(0) : load<C>(p.v, p.positions, at.b, t, c);
      if (all_slots.kept == 0) {
        fold.add(key, value, position + 1);
        if (!p.excluded) result = result_of_fold(fold);
      } else {
        const index_t left = position - all_slots.kept;
        if (left >= 0) {
          const C* const old = kept.at_place(place);
          fold.add(old[2 * kept.step], old[kept.step], left + 1);
        }
        kept.keep(place, key, value);
        place = place + 1 < all_slots.kept ? place + 1 : 0;
        const stream_row<C> row{at.element, head, position, left < 0 ? 0 : left + 1};
        const slot_fold<C> seen = p.excluded ? slot_fold<C>{} : fold;
        key_sum<C> sum;
        for (index_t block = row.first / kept_block; block <= position / kept_block; ++block)
          sum = merge(sum, sum_of_block(p, row, kept, block));
        key_sum<C> of_fold;
        of_fold.max = seen.exponent;
        of_fold.num = seen.total_num();
        of_fold.den = seen.total_den();
        sum = merge(of_fold, sum);
        result = seen.is_plain() && proven(sum) ? result_of_sum(sum) : exact_stream_row(p, row, kept, seen);
      }
    } else if (i < at.length) {
      result = unknown_row<C>();
    }
    row_epilogue(p, at.b, t, c, result);
  }
  if (taken > 0) fold.write(at.slot, all_slots.channels, c);
}

template <class C>
AFT_KERNEL(stream_threads, 1)
stream_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER device_slots all_slots,
              const AFT_PARAMETER stream_elements elements) {
  const index_t i = block_index() / elements.blocks;
  const slot_place at = slot_place::of(p, all_slots, elements, i);
  const index_t c = (block_index() - i * elements.blocks) * elements.channels + thread_index();
  if (!at.skipped && c < p.d) continue_channel(p, all_slots, at, c);
  if (elements.blocks > 1) return;
  sync();
  if (thread_index() == 0) move_position(all_slots, at);
}

/// The positions of slots whose channels several blocks have gone through.
template <class C>
AFT_KERNEL(stream_threads, 1)
stream_position_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER device_slots all_slots,
                       const AFT_PARAMETER stream_elements elements) {
  const index_t i = block_index() * stream_threads + thread_index();
  if (i < elements.count) move_position(all_slots, slot_place::of(p, all_slots, elements, i));
}

}  // namespace aft::inline AFT_ISA::cuda_impl
