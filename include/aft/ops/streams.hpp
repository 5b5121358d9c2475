// SPDX-License-Identifier: Apache-2.0
/// @file streams.hpp  Slots of a stream: made ready, copied, asked where they stand.
#pragma once

#include <cstring>

#include <aft/core/checks/stream.hpp>
#include <aft/core/problem/dispatch.hpp>
#include <aft/math/window.hpp>

namespace aft {

template <element T>
[[gnu::always_inline]] inline stream_spec stream_spec::local(index_t d, index_t hk, const window& win) {
  return stream_spec(stream_operator::local, dtype_of<T>, d, hk, win.before, win.after, 0, 0).with_engine<T>();
}

inline namespace AFT_ISA {

namespace checks {

/// What all three ask of their arguments.
template <class E>
void require_stream(const char* op, const E& exec, const any_stream& st) {
  require_executor(op, exec);
  if (st.empty()) fail(op, {"stream"}, "a stream", "none");
  require_slots(op, st, std::is_same_v<E, cuda>);
}

/// Whether slots are a device's: what is left of a call on others is its message.
template <class E, class Space>
constexpr bool runs_on_device = std::is_same_v<E, cuda>&& std::is_same_v<Space, device_space>;

/// What a device's slots are asked with: headers are of no type, so any will do, but it has to depend on the call.
template <class E>
using any_arithmetic = std::conditional_t<std::is_same_v<E, cuda>, float, void>;

inline stream_ref to_stream_ref(const any_stream& st) {
  stream_ref all_slots;
  all_slots.data = static_cast<std::byte*>(st.data());
  all_slots.spec = st.spec();
  all_slots.count = st.count();
  all_slots.digest = digest_of(st.spec(), st.on_device());
  return all_slots;
}

/// Slots [first, last) of either space.
template <class E, class Space>
void reset_in_space(const E& exec, const stream_view<Space>& st, index_t first, index_t last);

[[gnu::cold]] inline void require_slot(const char* op, const char* name, const any_stream& st, index_t slot) {
  if (slot < 0 || slot >= st.count()) fail(op, {name}, text("slots from 0 to ") << st.count() - 1, slot);
}

[[gnu::cold]] inline void reset_slots(const any_stream& st, index_t first, index_t last) {
  const std::uint64_t spec = digest_of(st.spec());
  for (index_t slot = first; slot < last; ++slot)
    slot_header::write(static_cast<std::byte*>(st.data()) + slot * st.spec().bytes(), spec, 0);
}

/// Slots `from` and `to` of a copy.
struct slot_pairs {
  length_list from, to;
  index_t count = 0;
};

/// What can be said of them without a look at their numbers.
[[gnu::cold]] inline slot_pairs require_ids(const char* op, const any_view& from, const any_view& to, bool on_device) {
  const argument named[] = {{"from", from}, {"to", to}};
  for (const argument& a : named) {
    if (a.view.on_device() != on_device)
      fail(op, a, on_device ? "a device view" : "a host view", on_device ? "a host view" : "a device view");
    if (a.view.type() != dtype::i64 && a.view.type() != dtype::i32)
      fail(op, a, "int64 or int32", name_of(a.view.type()));
    if (a.view.rank() != 1) fail(op, a, "rank 1", static_cast<index_t>(a.view.rank()));
    require_sane(op, a);
    require_data(op, a);
  }
  if (to.extent(0) != from.extent(0))
    fail(op, named[1], axis_text(0, "n") << " to be " << from.extent(0) << " as in 'from'", to.extent(0));
  return {to_lengths(from), to_lengths(to), from.extent(0)};
}

[[gnu::cold]] inline slot_pairs require_copy(const char* op, const any_stream& st, const any_view& from,
                                             const any_view& to) {
  const slot_pairs pairs = require_ids(op, from, to, false);
  const argument named[] = {{"from", from}, {"to", to}};
  const auto at = [](const length_list& ids, index_t i) {
    stream_ref one;
    one.ids = ids.data;
    one.id_step = ids.step;
    one.wide = ids.wide;
    return one.slot(i);
  };
  const std::uint64_t spec = digest_of(st.spec());
  for (index_t i = 0; i < pairs.count; ++i) {
    const index_t slot = at(pairs.to, i);
    require_slot(op, "to", st, slot);
  }
  for_each_block_of_slots(st.count(), [&](slot_block& written) {
    for (index_t i = 0; i < pairs.count; ++i) {
      const index_t slot = at(pairs.to, i);
      if (!written.add(slot)) fail(op, named[1], "every slot at most once", text("slot ") << slot << " twice");
    }
    for (index_t i = 0; i < pairs.count; ++i) {
      const index_t slot = at(pairs.from, i);
      if (written.has(slot))
        fail(op, named[1], "no slot that is copied from", text("slot ") << slot << ", which 'from' names too");
    }
  });
  for (index_t i = 0; i < pairs.count; ++i) {
    const index_t slot = at(pairs.from, i);
    require_slot(op, "from", st, slot);
    require_header(op, st, spec, slot);
  }
  return pairs;
}

/// A slot of full is copied as far as it has come; the others as a whole.
[[gnu::cold]] inline void copy_slot(const stream_spec& spec, const std::byte* from, std::byte* to) {
  const slot_layout l = spec.layout();
  const auto bytes = static_cast<std::size_t>(spec.bytes());
  if (spec.op() != stream_operator::full) {
    std::memcpy(to, from, bytes);
    return;
  }
  const index_t seen = slot_header::read(from).position, row = l.channels * l.element;
  const auto part = [&](index_t at, index_t size) {
    const index_t offset = slot_layout::header_bytes + at * l.element;
    std::memcpy(to + offset, from + offset, static_cast<std::size_t>(size));
  };
  std::memcpy(to, from, static_cast<std::size_t>(slot_layout::header_bytes));
  part(l.rows_at(), 2 * seen * row);
  part(l.keys_at(), seen * row);
  part(l.references_at(), (seen + slot_layout::block - 1) / slot_layout::block * row);
}

template <class E, class Space>
void reset_in_space(const E& exec, const stream_view<Space>& st, index_t first, index_t last) {
  if constexpr (runs_on_device<E, Space>) {
    if constexpr (require_cuda_backend<any_arithmetic<E>>())
      cuda_reset<any_arithmetic<E>>(to_stream_ref(st), first, last, exec);
  } else {
    static_cast<void>(exec);
    reset_slots(st, first, last);
  }
}

}  // namespace checks

/// Makes slots empty, at position 0, whatever bytes they hold: without `slot` all of them. Writes a header each. With
/// aft::cuda it is a launch on the CUDA stream, and the slots are a device's from then on.
/// Errors: shape_error for memory that is null or not aligned to 64 bytes, or not where the call runs, and for a slot
/// that there is not.
template <executor E, class Space>
void reset(const E& exec, const stream_view<Space>& st) {
  checks::require_stream("aft::reset", exec, st);
  checks::reset_in_space(exec, st, 0, st.count());
}
/// The same of one slot.
template <executor E, class Space>
void reset(const E& exec, const stream_view<Space>& st, index_t slot) {
  checks::require_stream("aft::reset", exec, st);
  checks::require_slot("aft::reset", "slot", st, slot);
  checks::reset_in_space(exec, st, slot, slot + 1);
}

/// Copies slot from[i] to slot to[i], which forks sequences, as a beam search does, and sets candidates of a
/// speculation back. `from` and `to` are views (n) of int32 or int64. One slot may be copied to several. Cost: the
/// bytes that the slot has in use. Errors: shape_error before anything is written, for a slot out of range, twice in
/// `to`, or in both, and for one in `from` without a header. With aft::cuda both are device views and it is one launch,
/// which passes over pairs with a slot out of range; a slot without a header makes another, and what one that is twice
/// in `to` or in both then holds is not specified.
template <executor E, class Space>
void copy(const E& exec, const stream_view<Space>& st, const any_view& from, const any_view& to) {
  checks::require_stream("aft::copy", exec, st);
  if constexpr (checks::runs_on_device<E, Space>) {
    using C = checks::any_arithmetic<E>;
    const checks::slot_pairs ids = checks::require_ids("aft::copy", from, to, true);
    if constexpr (require_cuda_backend<C>()) cuda_copy<C>(checks::to_stream_ref(st), ids.from, ids.to, ids.count, exec);
    return;
  }
  const checks::slot_pairs pairs = checks::require_copy("aft::copy", st, from, to);
  stream_ref source, target;
  source.ids = pairs.from.data, source.id_step = pairs.from.step, source.wide = pairs.from.wide;
  target.ids = pairs.to.data, target.id_step = pairs.to.step, target.wide = pairs.to.wide;
  std::byte* const first = static_cast<std::byte*>(st.data());
  const index_t bytes = st.spec().bytes();
  for (index_t i = 0; i < pairs.count; ++i)
    checks::copy_slot(st.spec(), first + source.slot(i) * bytes, first + target.slot(i) * bytes);
}

/// How many positions a slot has seen. Errors: shape_error for a slot that there is not, or without a header. With
/// aft::cuda it waits for all that was launched on the CUDA stream before, and cannot be captured.
template <executor E, class Space>
index_t position(const E& exec, const stream_view<Space>& st, index_t slot) {
  checks::require_stream("aft::position", exec, st);
  checks::require_slot("aft::position", "slot", st, slot);
  if constexpr (checks::runs_on_device<E, Space>) {
    alignas(64) std::byte header[checks::slot_layout::header_bytes];
    using C = checks::any_arithmetic<E>;
    if constexpr (require_cuda_backend<C>()) cuda_read<C>(checks::to_stream_ref(st), slot, header, sizeof header, exec);
    return checks::require_header("aft::position", header, checks::digest_of(st.spec(), true), slot);
  }
  return checks::require_header("aft::position", st, checks::digest_of(st.spec()), slot);
}

}  // namespace AFT_ISA
}  // namespace aft
