// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <aft/core/checks/options.hpp>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "streams.hpp"
#include "tensors.hpp"

namespace aft::c_interface {

using checks::fail;
using checks::text;

namespace {

/// Where each member ends: a struct that stops elsewhere was made by nobody's header.
#define AFT_MEMBER_END(member) offsetof(aft_options, member) + sizeof(aft_options::member)
constexpr std::size_t ends[] = {
    AFT_MEMBER_END(size),          AFT_MEMBER_END(causal),      AFT_MEMBER_END(gate),
    AFT_MEMBER_END(outside),       AFT_MEMBER_END(arithmetic),  AFT_MEMBER_END(threads),
    AFT_MEMBER_END(first_query),   AFT_MEMBER_END(mask),        AFT_MEMBER_END(key_lengths),
    AFT_MEMBER_END(lse),           AFT_MEMBER_END(average),     AFT_MEMBER_END(query_lengths),
    AFT_MEMBER_END(query_offsets), AFT_MEMBER_END(key_offsets), AFT_MEMBER_END(slot_ids),
    AFT_MEMBER_END(stream),        AFT_MEMBER_END(cuda_stream)};
#undef AFT_MEMBER_END
static_assert(ends[std::size(ends) - 1] == sizeof(aft_options), "a new member has its end here too");

/// Larger than any struct will be: what claims to be is not read to its end.
constexpr std::size_t largest_size = 4096;

bool ends_a_member(std::size_t size) {
  for (const std::size_t end : ends) {
    // Padding between members belongs to the one before.
    if (size == end || size == (end + alignof(aft_options) - 1) / alignof(aft_options) * alignof(aft_options))
      return true;
  }
  return size > sizeof(aft_options);
}

/// The caller's struct as this version knows it: zero where the caller's header has no member yet.
aft_options to_current(const char* op, const aft_options* o) {
  aft_options current{};
  if (o == nullptr) return current;
  // Read by itself: the rest of the struct may not be there.
  std::size_t size = 0;
  std::memcpy(&size, o, sizeof size);
  if (size > largest_size || !ends_a_member(size)) {
    fail(op, {"options"}, text("size = sizeof(aft_options), which is ") << sizeof(aft_options) << " here",
         size > largest_size ? text("more than ") << largest_size : text(static_cast<index_t>(size)));
  }
  for (std::size_t i = sizeof(aft_options); i < size; ++i) {
    if (reinterpret_cast<const unsigned char*>(o)[i] == 0) continue;
    fail(op, {"options"},
         text("nothing but zeros behind the ") << sizeof(aft_options) << " bytes that this version knows",
         text("another value in byte ") << i << ": an option of a later version");
  }
  std::memcpy(&current, o, size < sizeof current ? size : sizeof current);
  return current;
}

/// A C enumerator as its C++ one; the order differs where zero has to be the default.
template <class T, std::size_t N>
T to_enum(const char* op, const char* name, std::int32_t value, const T (&all)[N]) {
  if (value < 0 || static_cast<std::size_t>(value) >= N) fail(op, {name}, text("0 to ") << N - 1, index_t{value});
  return all[value];
}

any_view to_view(const char* op, const char* name, const aft_tensor* tensor, bool on_device) {
  checks::argument a{name};
  set_tensor(op, a, tensor, on_device);
  return a.view;
}

/// Offsets stay on the host, and are refused elsewhere, as any other tensor in a build without CUDA.
any_view to_offsets(const char* op, const char* name, const aft_tensor* tensor) {
  return to_view(op, name, tensor, tensor != nullptr && is_device_memory(*tensor));
}

}  // namespace

settings read_options(const char* op, const aft_options* o, std::initializer_list<named> given) {
  static constexpr gate gates[] = {gate::sigmoid, gate::none, gate::identity, gate::relu, gate::tanh, gate::silu};
  static constexpr outside outsides[] = {outside::zero_bias, outside::excluded};
  static constexpr arithmetic arithmetics[] = {arithmetic::automatic, arithmetic::full};
  const aft_options c = to_current(op, o);
  settings s;
  s.where = find_place(op, c, true, given);
  s.exec.threads = c.threads;
  s.opt.causal = c.causal != 0;
  s.opt.gate_fn = to_enum(op, "gate", c.gate, gates);
  s.opt.outside = to_enum(op, "outside", c.outside, outsides);
  s.opt.arithmetic = to_enum(op, "arithmetic", c.arithmetic, arithmetics);
  s.opt.first_query = c.first_query;
  if (c.stream != nullptr) s.opt.stream = read_stream(op, c.stream, s.where.on_device);
  s.opt.mask = to_view(op, "mask", c.mask, s.where.on_device);
  s.opt.key_lengths = to_view(op, "key_lengths", c.key_lengths, s.where.on_device);
  s.opt.lse = to_view(op, "lse", c.lse, s.where.on_device);
  s.opt.average = to_view(op, "average", c.average, s.where.on_device);
  s.opt.query_lengths = to_view(op, "query_lengths", c.query_lengths, s.where.on_device);
  s.opt.slot_ids = to_view(op, "slot_ids", c.slot_ids, s.where.on_device);
  s.opt.query_offsets = to_offsets(op, "query_offsets", c.query_offsets);
  s.opt.key_offsets = to_offsets(op, "key_offsets", c.key_offsets);
  return s;
}

settings read_executor(const char* op, const aft_options* o, std::initializer_list<named> given) {
  const aft_options c = to_current(op, o);
  settings s;
  s.where = find_place(op, c, false, given);
  s.exec.threads = c.threads;
  return s;
}

}  // namespace aft::c_interface
