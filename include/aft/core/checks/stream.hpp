// SPDX-License-Identifier: Apache-2.0
/// @file checks/stream.hpp  Streams: that a call may go on from one, and that its slots and its bias reach so far.
#pragma once

#include <bitset>
#include <limits>

#include "../stream/slot_header.hpp"
#include "bias.hpp"
#include "options.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

inline bool streams(const call& c) {
  return !c.opt->stream.empty();
}

/// The memory behind a stream, as a tensor of bytes.
[[gnu::cold]] inline any_view bytes_of(const any_stream& s) {
  const index_t bytes = s.count() * s.spec().bytes();
  return any_view(s.data(), dtype::u8, 1, &bytes, nullptr);
}

/// That there are slots which can be read: where the call runs, aligned, and not too many.
[[gnu::cold]] inline void require_slots(const char* op, const any_stream& s, bool on_device) {
  if (s.on_device() != on_device)
    fail(op, {"stream"}, on_device ? "slots in device memory, as the call runs there" : "slots in host memory",
         s.on_device() ? "a stream in device memory" : "a stream in host memory");
  if (s.count() < 0 || s.count() > (index_t{1} << 61) / s.spec().bytes())
    fail(op, {"stream"}, text("0 to 2^61 bytes of slots of ") << s.spec().bytes(), text(s.count()) << " slots");
  if (s.count() == 0) return;
  if (s.data() == nullptr) fail(op, {"stream"}, text("data for ") << s.count() << " slots", "a null pointer");
  if (const auto beyond = reinterpret_cast<std::uintptr_t>(s.data()) % 64; beyond != 0) {
    fail(op, {"stream"}, "data aligned to 64 bytes",
         text("an address ") << static_cast<index_t>(beyond) << " bytes after such a one");
  }
}

/// The position that a slot's first bytes say, if they are the header of such a stream.
[[gnu::cold]] inline index_t require_header(const char* op, const std::byte* bytes, std::uint64_t spec, index_t slot) {
  const slot_header h = slot_header::read(bytes);
  const char* got = "other bytes";
  switch (h.fault(spec)) {
    case slot_fault::none: return h.position;
    case slot_fault::foreign: break;
    case slot_fault::version: got = "a header of another version of the library"; break;
    case slot_fault::spec: got = "a header of another spec"; break;
    case slot_fault::damaged: got = "a header whose checksum is wrong"; break;
  }
  fail(op, {"stream"}, text("slot ") << slot << " to have the header that aft::reset writes", got);
}

/// The same of a slot that the host can read.
[[gnu::cold]] inline index_t require_header(const char* op, const any_stream& s, std::uint64_t spec, index_t slot) {
  return require_header(op, static_cast<const std::byte*>(s.data()) + slot * s.spec().bytes(), spec, slot);
}

[[gnu::cold]] inline const char* name_of_operator(stream_operator op) {
  static constexpr const char* names[] = {"aft::full", "aft::local", "aft::simple", "aft::conv"};
  return names[static_cast<std::size_t>(op)];
}

inline stream_operator operator_of(const call& c) {
  if (c.windowed) return stream_operator::local;
  if (c.bias.kind == bias_kind::filter) return stream_operator::conv;
  return c.bias.kind == bias_kind::none ? stream_operator::simple : stream_operator::full;
}

/// What no call with a stream may be, before its shapes are looked at.
[[gnu::cold]] inline void require_streamed_call(const call& c, std::size_t axes) {
  if (!streams(c)) {
    if (!c.opt->slot_ids.empty())
      fail(c.op, {"slot_ids"}, "an empty view without a stream", text("shape ") << shape_text(c.opt->slot_ids));
    return;
  }
  const any_stream& s = c.opt->stream;
  if (c.backward) fail(c.op, {"stream"}, "none in a backward call", "a stream");
  if (axes != 1)
    fail(c.op, {"stream"}, "none on a grid", text("a stream with ") << static_cast<index_t>(axes) << " axes");
  if (!c.opt->causal) fail(c.op, {"causal"}, "true with a stream", "false");
  if (c.opt->first_query != 0) fail(c.op, {"first_query"}, "0 with a stream", c.opt->first_query);
  for (const argument* a : {&c.mask, &c.key_lengths})
    if (a->given()) fail(c.op, *a, "none with a stream", text("shape ") << shape_text(a->view));
  require_slots(c.op, s, c.on_device);
  if (const stream_operator op = operator_of(c); s.spec().op() != op)
    fail(c.op, {"stream"}, text("a spec of ") << name_of_operator(op), name_of_operator(s.spec().op()));
  if (s.spec().type() != c.type)
    fail(c.op, {"stream"}, text("a spec of ") << name_of(c.type) << " as the data is", name_of(s.spec().type()));
#if !defined(AFT_COMPILED)
  if (!c.on_device && s.spec().engine() == nullptr)
    fail(c.op, {"stream"}, "a spec of stream_spec's functions, made in a file that compiles kernels as this one does",
         "one that brings none");
#endif
}

/// The spec against the shapes of the call.
[[gnu::cold]] inline void require_spec_of_call(const call& c, const problem& p) {
  const stream_spec& s = c.opt->stream.spec();
  const auto same = [&](const char* what, index_t in_spec, index_t in_call) {
    if (in_spec != in_call)
      fail(c.op, {"stream"}, text("a spec with ") << what << " = " << in_call << " as the call has", in_spec);
  };
  same("d", s.d(), p.d);
  same("hk", s.hk(), p.hk);
  if (c.windowed) {
    same("window.before", s.before(), c.win.before);
    same("window.after", s.after(), c.win.after);
  }
  if (c.bias.kind == bias_kind::filter) same("taps", s.taps(), p.taps[2]);
}

/// Without slot_ids every batch element has a slot.
[[gnu::cold]] inline void require_enough_slots(const call& c, const problem& p) {
  const index_t count = c.opt->stream.count();
  if (c.sequences->slot_ids.given() || count >= p.elements()) return;
  fail(c.op, {"stream"},
       text("at least ") << (p.packed != nullptr ? "N = " : "B = ") << p.elements()
                         << " slots, as there are no slot_ids",
       text(count) << " slots");
}

/// Calls f(tensor, axis, name) for each axis of the bias that has an element for every position. One row, or a stride
/// of 0, is every position's.
template <class F>
void for_each_position_axis(const bias_arguments& b, F f) {
  const auto rows = [&](const argument& a, std::size_t axis, const char* name, bool repeats) {
    if (!a.given() || (repeats && a.view.extent(axis) > 0 && a.view.stride(axis) == 0)) return;
    f(a, axis, name);
  };
  if (b.w.given()) rows(b.w, row_axis(b.w.view), "Tq", true);
  if (b.kind == bias_kind::dense) rows(b.w, b.w.view.rank() - 1, "Tk", false);
  if (b.u.given()) rows(b.u, row_axis(b.u.view), "Tq", true);
  if (b.v.given()) rows(b.v, row_axis(b.v.view), "Tk", true);
}

/// How many positions of a sequence find room in a slot and rows in the bias. On a device the position lives in the
/// slot, so rows from there on are the kernel's to refuse.
[[gnu::cold]] inline index_t position_limit(const call& c) {
  const stream_spec& s = c.opt->stream.spec();
  index_t limit = s.op() == stream_operator::full ? s.capacity() : std::numeric_limits<index_t>::max();
  for_each_position_axis(c.bias, [&](const argument& a, std::size_t axis, const char*) {
    if (a.view.extent(axis) < limit) limit = a.view.extent(axis);
  });
  return limit;
}

/// Which slots of a block of them have been named. The checks have no memory to ask for, so they pass over the names
/// once for every block.
class slot_block {
 public:
  static constexpr index_t size = index_t{1} << 15;
  explicit slot_block(index_t first) : first_(first) {}

  bool has(index_t slot) const { return holds(slot) && named_[static_cast<std::size_t>(slot - first_)]; }
  /// False if it has been named before. Slots of other blocks, and -1, have not.
  bool add(index_t slot) {
    if (!holds(slot)) return true;
    if (has(slot)) return false;
    named_.set(static_cast<std::size_t>(slot - first_));
    return true;
  }

 private:
  bool holds(index_t slot) const { return slot >= first_ && slot - first_ < size; }

  index_t first_;
  std::bitset<static_cast<std::size_t>(size)> named_;
};

template <class F>
void for_each_block_of_slots(index_t count, const F& f) {
  for (index_t first = 0; first < count; first += slot_block::size) {
    slot_block one(first);
    f(one);
  }
}

/// Slots named once, each with room for the new positions, and the bias with a row for each.
class slot_checks {
 public:
  slot_checks(const call& c, const problem& p) : c_(c), p_(p), spec_(digest_of(c.opt->stream.spec())) {}

  [[gnu::cold]] void run() {
    index_t before = -1;
    bool ascending = true;
    for (index_t b = 0; b < p_.elements(); ++b) {
      const index_t slot = p_.stream->slot(b);
      if (slot == -1) continue;
      require_known(b, slot);
      ascending = ascending && slot > before;
      before = slot;
      const index_t position = require_header(c_.op, c_.opt->stream, spec_, slot);
      require_room(slot, position, position + p_.element_rows(b));
    }
    if (!ascending) require_distinct();
  }

 private:
  void require_known(index_t b, index_t slot) const {
    const index_t count = c_.opt->stream.count();
    if (slot >= 0 && slot < count) return;
    require_enough_slots(c_, p_);
    fail(c_.op, c_.sequences->slot_ids, text("slots from 0 to ") << count - 1 << ", or -1",
         text("slot ") << slot << " for batch element " << b);
  }

  void require_distinct() const {
    for_each_block_of_slots(c_.opt->stream.count(), [&](slot_block& named) {
      for (index_t b = 0; b < p_.elements(); ++b) {
        const index_t slot = p_.stream->slot(b);
        if (named.add(slot)) continue;
        fail(c_.op, c_.sequences->slot_ids, "every slot at most once", text("slot ") << slot << " twice");
      }
    });
  }

  /// The rows [position, end) of a slot.
  void require_room(index_t slot, index_t position, index_t end) const {
    if (position == end) return;
    const stream_spec& s = c_.opt->stream.spec();
    if (s.op() == stream_operator::full && end > s.capacity()) {
      fail(c_.op, {"stream"},
           text("a capacity of at least ") << end << " for slot " << slot << " at position " << position, s.capacity());
    }
    for_each_position_axis(c_.bias, [&](const argument& a, std::size_t axis, const char* name) {
      if (a.view.extent(axis) >= end) return;
      fail(c_.op, a,
           axis_text(axis, name) << " to be at least " << end << " for slot " << slot << " at position " << position,
           a.view.extent(axis));
    });
  }

  const call& c_;
  const problem& p_;
  std::uint64_t spec_;
};

/// Everything about the slots of a call whose shapes fit; it is then the problem's stream.
[[gnu::cold]] inline void set_stream(call& c, problem& p) {
  if (!streams(c)) return;
  require_spec_of_call(c, p);
  const any_stream& s = c.opt->stream;
  stream_ref& ref = c.sequences->stream;
  p.stream = &ref;
  ref.data = static_cast<std::byte*>(s.data());
  ref.spec = s.spec();
  ref.count = s.count();
  ref.digest = digest_of(s.spec(), c.on_device);
  if (c.sequences->slot_ids.given()) {
    const length_list ids = to_lengths(c.sequences->slot_ids.view);
    ref.ids = ids.data;
    ref.id_step = ids.step;
    ref.wide = ids.wide;
  }
  if (c.on_device) {
    require_enough_slots(c, p);
    ref.limit = position_limit(c);
    return;
  }
  slot_checks(c, p).run();
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
