// SPDX-License-Identifier: Apache-2.0
/// @file stream/full.cuh  aft::full that goes on from slots. It keeps all positions and folds none, so that rows do not
/// wait for each other: a row's blocks of kept positions are dealt to parts, and those of a part to warps.
///
/// Where a call has elements enough, a block takes all parts of its rows one after the other. Of a few elements every
/// part has a block of its own, and what these sum is joined by a second launch: at 512 channels one element is 16
/// blocks, which load 1.8 TB/s at most on an H100 of 3.35, and far less as each warp waits for 12 loads at a time. The
/// order of sums is the same, and so are the bits.
#pragma once

#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Warps of a part, and parts of a row. Both are part of a result's bits. Not measured.
inline constexpr int stream_warps = 8;
inline constexpr int stream_parts = 8;
/// Positions that a part of a row begins with.
inline constexpr index_t part_positions = stream_warps * kept_block;

/// Parts that have any of the positions up to this one.
AFT_HOST_DEVICE constexpr index_t parts_of(index_t position) {
  return min_of(position / part_positions + 1, index_t{stream_parts});
}

/// What the parts of rows sum to, (row, part, channel).
template <class C>
struct part_sums {
  key_sum<C>* data = nullptr;
  index_t parts = 1, channels = 0;

  AFT_DEVICE key_sum<C>& at(index_t row, index_t part, index_t c) const {
    return data[(row * parts + part) * channels + c];
  }
};

/// What warps of a part sum to, and what the parts before it do: in registers it would be eight of them too many.
template <class C>
struct stream_buffers {
  key_sum<C> sums[stream_warps][warp_size];
  key_sum<C> row[warp_size];
};

/// A lane's channel of an element of aft::full.
template <class C>
struct full_channel {
  slot_place at;
  index_t c, head;
  index_t taken;
  kept_keys<C> kept;

  AFT_DEVICE full_channel(const device_call<C>& p, const device_slots& all_slots, const stream_elements& elements,
                          index_t element, index_t block)
      : at(slot_place::of(p, all_slots, elements, element)),
        c(block * elements.channels + thread_index() % warp_size),
        head(c < p.d ? c / (p.d / p.bias.heads) : 0),
        taken(at.taken(all_slots)),
        kept(all_slots, at.skipped ? all_slots.data : at.slot, c < p.d ? c : 0) {}

  AFT_DEVICE bool exists(const device_call<C>& p) const { return c < p.d; }
  AFT_DEVICE stream_row<C> row(index_t i) const { return {at.element, head, at.position + i, 0}; }

  AFT_DEVICE void keep(const device_call<C>& p, index_t i) const {
    const C key = load_key(p, at.b, at.first_row + i, c);
    const C value = key == -number<C>::infinity ? C(0) : load<C>(p.v, p.positions, at.b, at.first_row + i, c);
    kept.keep(at.position + i, key, value);
  }

  /// Adds the sum of one part of a row to `buffers.row`, of which each lane of the first warp has one. All threads of a
  /// block call it.
  AFT_DEVICE void add_part(const device_call<C>& p, index_t i, int part, stream_buffers<C>& buffers) const {
    const int lane = thread_index() % warp_size, warp = thread_index() / warp_size;
    const stream_row<C> of = row(i);
    key_sum<C> sum;
    for (index_t block = part * stream_warps + warp; exists(p) && block <= of.position / kept_block;
         block += stream_warps * stream_parts)
      sum = merge(sum, sum_of_block(p, of, kept, block));
    buffers.sums[warp][lane] = sum;
    sync();
    if (warp == 0) {
      key_sum<C> joined;
      for (int w = 0; w < stream_warps; ++w) joined = merge(joined, buffers.sums[w][lane]);
      buffers.row[lane] = merge(buffers.row[lane], joined);
    }
    sync();
  }

  /// Writes row i, of which `sum` is the sum where it was taken.
  AFT_DEVICE void finish(const device_call<C>& p, index_t i, const key_sum<C>& sum) const {
    row_result<C> result;
    if (i < taken) {
      result = proven(sum) ? result_of_sum(sum) : exact_stream_row(p, row(i), kept, slot_fold<C>{});
    } else if (i < at.length) {
      result = unknown_row<C>();
    }
    row_epilogue(p, at.b, at.first_row + i, c, result);
  }
};

/// A block for an element and a warp's width of channels. Two fit a multiprocessor in float: left to itself ptxas takes
/// 136 registers, for one.
template <class C>
AFT_KERNEL(warp_size* stream_warps, sizeof(C) == 4 ? 2 : 1)
stream_full_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER device_slots all_slots,
                   const AFT_PARAMETER stream_elements elements) {
  auto& buffers = shared<stream_buffers<C>>();
  const index_t element = block_index() / elements.blocks;
  const full_channel<C> own(p, all_slots, elements, element, block_index() - element * elements.blocks);
  if (own.at.skipped) return;
  const int warp = thread_index() / warp_size;
  for (index_t i = warp; own.exists(p) && i < own.taken; i += stream_warps) own.keep(p, i);
  sync();
  for (index_t i = 0; i < own.at.rows; ++i) {
    if (warp == 0) buffers.row[thread_index()] = key_sum<C>{};
    for (int part = 0; i < own.taken && part < parts_of(own.at.position + i); ++part) own.add_part(p, i, part, buffers);
    if (warp == 0 && own.exists(p)) own.finish(p, i, buffers.row[thread_index()]);
  }
  if (elements.blocks == 1 && thread_index() == 0) move_position(all_slots, own.at);
}

/// A block for an element, a warp's width of channels and a part, which keeps what it will read.
template <class C>
AFT_KERNEL(warp_size* stream_warps, 1)
stream_full_parts_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER device_slots all_slots,
                         const AFT_PARAMETER stream_elements elements, const part_sums<C> sums) {
  auto& buffers = shared<stream_buffers<C>>();
  const index_t item = block_index() / sums.parts;
  const int part = static_cast<int>(block_index() - item * sums.parts), warp = thread_index() / warp_size;
  const index_t element = item / elements.blocks;
  const full_channel<C> own(p, all_slots, elements, element, item - element * elements.blocks);
  if (own.at.skipped) return;
  for (index_t i = warp; own.exists(p) && i < own.taken; i += stream_warps)
    if ((own.at.position + i) / part_positions % stream_parts == part) own.keep(p, i);
  sync();
  for (index_t i = 0; i < own.taken; ++i) {
    if (part >= parts_of(own.at.position + i)) continue;
    if (warp == 0) buffers.row[thread_index()] = key_sum<C>{};
    own.add_part(p, i, part, buffers);
    if (warp == 0 && own.exists(p)) sums.at(own.at.b * p.Tq + i, part, own.c) = buffers.row[thread_index()];
  }
}

/// A warp for an element, a warp's width of channels and a row.
template <class C>
AFT_KERNEL(warp_size* stream_warps, 1)
stream_full_rows_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER device_slots all_slots,
                        const AFT_PARAMETER stream_elements elements, const part_sums<C> sums) {
  const index_t item = block_index() * stream_warps + thread_index() / warp_size;
  const index_t channels = item / p.Tq, i = item - channels * p.Tq, element = channels / elements.blocks;
  if (element >= elements.count) return;
  const full_channel<C> own(p, all_slots, elements, element, channels - element * elements.blocks);
  if (own.at.skipped || !own.exists(p)) return;
  key_sum<C> sum;
  for (index_t part = 0; i < own.taken && part < parts_of(own.at.position + i); ++part)
    sum = merge(sum, sums.at(own.at.b * p.Tq + i, part, own.c));
  own.finish(p, i, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
