// SPDX-License-Identifier: Apache-2.0
/// @file launch/stream.cuh  The launches of a call that goes on from slots, and of what is done with slots.
///
/// None needs the host's look at a slot, so a captured call can be replayed: it goes on where the slots are.
#pragma once

#include "../device/runtime.cuh"
#include "../plan/to_call.cuh"
#include "../stream/copies.cuh"
#include "../stream/full.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline device_slots to_slots(const stream_ref& s) {
  const checks::slot_layout layout = s.spec.layout();
  device_slots all_slots;
  all_slots.data = s.data;
  all_slots.bytes = layout.bytes();
  all_slots.count = s.count;
  all_slots.ids = {s.ids, s.id_step, s.wide};
  all_slots.digest = s.digest;
  all_slots.kept = layout.kept;
  all_slots.channels = layout.channels;
  all_slots.limit = s.limit;
  all_slots.folds = layout.fold > 0;
  return all_slots;
}

/// Blocks that share a row of aft::full: where elements and channels leave half of the multiprocessors without one, and
/// slots have room for more than a part. Their sums take scratch, at most so many bytes.
template <class C>
index_t blocks_of_row(const problem& p, const stream_elements& elements) {
  constexpr index_t most_bytes = index_t{64} << 20;
  const index_t parts = min_of(ceil_div(p.stream->spec.layout().kept, part_positions), index_t{stream_parts});
  const index_t bytes = p.B * p.Tq * parts * elements.blocks * elements.channels * index_t{sizeof(key_sum<C>)};
  const bool few = 2 * p.B * elements.blocks <= multiprocessors();
  return few && !elements.packed && bytes <= most_bytes ? parts : 1;
}

/// One launch where a block has all channels of a slot, else one more that moves the positions, and of few slots of
/// aft::full another that joins the parts of rows; packed sequences come in launches of most_sequences.
template <class C>
void stream_forward(const problem& p, const call_stream& stream) {
  if (p.Tq == 0) return;
  const device_call<C> call = to_call<C>(p);
  const device_slots all_slots = to_slots(*p.stream);
  static_assert(sizeof call + sizeof all_slots + sizeof(stream_elements) + sizeof(part_sums<C>) <= 4096,
                "more than every device takes");
  const bool full = p.stream->spec.op() == stream_operator::full;
  stream_elements elements;
  elements.packed = p.packed != nullptr;
  const index_t whole = round_up(max_of(p.d, index_t{1}), index_t{warp_size});
  elements.channels = full ? warp_size : min_of(whole, index_t{stream_threads});
  elements.blocks = ceil_div(p.d, elements.channels);
  const int threads = full ? warp_size * stream_warps : static_cast<int>(elements.channels);
  const index_t parts = full ? blocks_of_row<C>(p, elements) : 1;
  if (parts > 1) {
    elements.count = p.elements();
    device_scratch memory(stream);
    part_sums<C> sums{nullptr, parts, elements.blocks * elements.channels};
    memory.reserve(sums.data, p.B * p.Tq * parts * sums.channels);
    memory.allocate();
    stream.launch(stream_full_parts_kernel<C>, p.B * elements.blocks * parts, threads, call, all_slots, elements, sums);
    stream.launch(stream_full_rows_kernel<C>, ceil_div(p.B * elements.blocks * p.Tq, index_t{stream_warps}), threads,
                  call, all_slots, elements, sums);
    stream.launch_each(stream_position_kernel<C>, elements.count, stream_threads, call, all_slots, elements);
    return;
  }
  const index_t step = elements.packed ? index_t{most_sequences} : p.elements();
  for (; elements.first < p.elements(); elements.first += step) {
    elements.count = min_of(step, p.elements() - elements.first);
    for (index_t i = 0; elements.packed && i <= elements.count; ++i)
      elements.offsets[i] = p.packed->queries.at(elements.first + i);
    stream.launch(full ? stream_full_kernel<C> : stream_kernel<C>, elements.count * elements.blocks, threads, call,
                  all_slots, elements);
    if (elements.blocks != 1)
      stream.launch_each(stream_position_kernel<C>, elements.count, stream_threads, call, all_slots, elements);
  }
}

inline void reset_slots_of(const stream_ref& s, index_t first, index_t last, const call_stream& stream) {
  stream.launch_each(reset_slots_kernel<float>, last - first, copy_threads, to_slots(s), first, last);
}

inline void copy_slots(const stream_ref& s, const length_list& from, const length_list& to, index_t n,
                       const call_stream& stream) {
  const device_slots all_slots = to_slots(s);
  copy_plan plan;
  plan.from = from;
  plan.to = to;
  plan.count = n;
  if (s.spec.op() == stream_operator::full) plan.row_bytes = 3 * all_slots.channels * s.spec.layout().element;
  stream.launch_each(copy_slots_kernel<float>, n * copy_plan::words(all_slots), copy_threads, all_slots, plan);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
