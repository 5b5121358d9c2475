// SPDX-License-Identifier: Apache-2.0
/// @file stream/copies.cuh  Slots made ready, and copied to others.
#pragma once

#include "slot.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int copy_threads = 256;

/// What a thread copies at once; slots are aligned to 64 bytes.
struct alignas(16) slot_word {
  std::uint64_t parts[2];
};

struct copy_plan {
  length_list from{}, to{};
  index_t count = 0;
  index_t row_bytes = 0;  ///< of aft::full, which copies as far as a slot has come: of a position; else 0

  AFT_HOST_DEVICE static index_t words(const device_slots& all_slots) {
    return all_slots.bytes / static_cast<index_t>(sizeof(slot_word));
  }
};

/// A header for each slot of [first, last). All kernels of a program are templates, see AFT_ISA.
template <class C>
AFT_KERNEL(copy_threads, 1)
reset_slots_kernel(const AFT_PARAMETER device_slots all_slots, const index_t first, const index_t last) {
  const index_t slot = first + block_index() * copy_threads + thread_index();
  if (slot < last) checks::slot_header::write(all_slots.at(slot), all_slots.digest, 0);
}

template <class C>
AFT_KERNEL(copy_threads, 1)
copy_slots_kernel(const AFT_PARAMETER device_slots all_slots, const AFT_PARAMETER copy_plan plan) {
  const index_t words = copy_plan::words(all_slots);
  const index_t at = block_index() * copy_threads + thread_index();
  if (at >= words * plan.count) return;
  const index_t pair = at / words, word = at - pair * words;
  const index_t from = id_of(plan.from, pair), to = id_of(plan.to, pair);
  if (from < 0 || from >= all_slots.count || to < 0 || to >= all_slots.count || from == to) return;
  if (plan.row_bytes > 0 && word * static_cast<index_t>(sizeof(slot_word)) >= checks::slot_layout::header_bytes) {
    const checks::slot_header header = checks::slot_header::read(all_slots.at(from));
    if (header.fault(all_slots.digest) != checks::slot_fault::none) return;
    const index_t used = checks::slot_layout::header_bytes + header.position * plan.row_bytes;
    if (word * static_cast<index_t>(sizeof(slot_word)) >= used) return;
  }
  reinterpret_cast<slot_word*>(all_slots.at(to))[word] = reinterpret_cast<const slot_word*>(all_slots.at(from))[word];
}

}  // namespace aft::inline AFT_ISA::cuda_impl
