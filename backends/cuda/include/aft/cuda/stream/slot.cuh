// SPDX-License-Identifier: Apache-2.0
/// @file stream/slot.cuh  Slots as kernels see them, and what a batch element of a call finds in its own.
///
/// A slot is a header, the fold of what left the window (stream/slot_fold.cuh) and, for every kept position, three rows
/// of channels: the mantissa of e^k, v and k, with position s at place s % kept. The power of two of e^k follows from k
/// by one multiplication. The host cannot look at any of it, so everything that a slot or an id may hold is met here.
#pragma once

#include <aft/core/problem/problem.hpp>
#include <aft/core/stream/slot_header.hpp>

#include "../tensor/call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

struct device_slots {
  std::byte* data = nullptr;
  index_t bytes = 0, count = 0;
  length_list ids{};         ///< of the elements; without data, element b continues slot b
  std::uint64_t digest = 0;  ///< of the spec
  index_t kept = 0;          ///< positions that a slot keeps
  index_t channels = 0;      ///< d, padded
  index_t limit = 0;         ///< positions that there is room and bias for
  bool folds = false;        ///< there is a fold of what the slot does not keep

  AFT_DEVICE std::byte* at(index_t slot) const { return data + slot * bytes; }
};

/// Elements whose offsets one launch takes along: 2 KiB of the 4 that arguments of a kernel may have on every device.
inline constexpr int most_sequences = 256;

/// The elements of one launch, and how their channels are dealt to blocks. Of packed sequences they are
/// [first, first + count), and `offsets` says where the rows of each begin, and where those of the last end.
struct stream_elements {
  index_t first = 0, count = 0;
  index_t blocks = 1;    ///< of channels
  index_t channels = 1;  ///< of a block
  bool packed = false;
  index_t offsets[most_sequences + 1] = {};
};

AFT_DEVICE index_t id_of(const length_list& ids, index_t i) {
  const std::byte* const at = ids.data + i * ids.step;
  return ids.wide ? index_t{*reinterpret_cast<const std::int64_t*>(at)}
                  : index_t{*reinterpret_cast<const std::int32_t*>(at)};
}

/// What a batch element, or a packed sequence, continues.
struct slot_place {
  bool skipped;  ///< nothing of it is read or written
  bool known;    ///< the slot has the header of such a stream
  std::byte* slot;
  index_t element;       ///< by which a bias with a batch axis counts
  index_t b, first_row;  ///< where tensors hold its rows
  index_t rows, length;  ///< all of them, and those that are no padding
  index_t position;      ///< of the first

  /// New positions that there is room for. The others' rows are no numbers, and the slot does not move over them.
  AFT_DEVICE index_t taken(const device_slots& all_slots) const {
    if (skipped || !known || position >= all_slots.limit) return 0;
    const index_t room = all_slots.limit - position;
    return length < room ? length : room;
  }

  template <class C>
  AFT_DEVICE static slot_place of(const device_call<C>& p, const device_slots& all_slots,
                                  const stream_elements& elements, index_t i) {
    slot_place place{};
    place.element = elements.first + i;
    const index_t slot = all_slots.ids.data != nullptr ? id_of(all_slots.ids, place.element) : place.element;
    place.skipped = slot < 0 || slot >= all_slots.count;
    if (place.skipped) return place;
    place.b = elements.packed ? 0 : place.element;
    place.first_row = elements.packed ? elements.offsets[i] : 0;
    place.rows = elements.packed ? elements.offsets[i + 1] - place.first_row : p.Tq;
    place.length = elements.packed ? place.rows : length_of(p.query_lengths, place.b, p.Tq);
    place.slot = all_slots.at(slot);
    const checks::slot_header header = checks::slot_header::read(place.slot);
    place.known = header.fault(all_slots.digest) == checks::slot_fault::none;
    place.position = header.position;
    return place;
  }
};

/// The header moves on, once nobody reads it any more.
AFT_DEVICE void move_position(const device_slots& all_slots, const slot_place& at) {
  const index_t taken = at.taken(all_slots);
  if (taken > 0) checks::slot_header::write(at.slot, all_slots.digest, at.position + taken);
}

/// The kept positions of one channel.
template <class C>
struct kept_keys {
  C* first = nullptr;
  index_t step = 0;  ///< from a row to the next
  index_t kept = 1;

  AFT_DEVICE kept_keys(const device_slots& all_slots, std::byte* slot, index_t c)
      : first(reinterpret_cast<C*>(slot + checks::slot_layout::header_bytes) +
              (all_slots.folds ? checks::slot_layout::fold_arrays * all_slots.channels : 0) + c),
        step(all_slots.channels),
        kept(all_slots.kept) {}

  /// Mantissa, v and k of the position at a place lie `step` apart from here on.
  AFT_DEVICE C* at_place(index_t place) const { return first + 3 * place * step; }
  /// What lies behind a hidden key is no number, maybe, and stays with the caller.
  AFT_DEVICE void keep(index_t place, C key, C value) const {
    C* const at = at_place(place);
    at[0] = stage_logit(key).mantissa;
    at[step] = value;
    at[2 * step] = key;
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
