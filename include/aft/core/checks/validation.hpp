// SPDX-License-Identifier: Apache-2.0
/// @file checks/validation.hpp  How a bad call is reported, and the checks that concern one tensor alone.
///
/// Checks are marked cold, here and in the headers beside this one: it makes compilers optimise them for size. They
/// take a microsecond a call either way, and unrolled and vectorised they took most of a user's compile time.
#pragma once

#include "call.hpp"
#include "../errors.hpp"
#include "../executors.hpp"
#include "../text.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// `extent 1 (Tk)`: an axis by its number and by its name in the documentation.
[[gnu::cold]] inline text axis_text(std::size_t axis, const char* name) {
  return text("extent ") << axis << " (" << name << ")";
}

[[gnu::cold]] inline text shape_text(const any_view& v) {
  text shape("(");
  for (std::size_t i = 0; i < v.rank(); ++i) shape << (i == 0 ? "" : ", ") << v.extent(i);
  return shape << ")";
}

[[gnu::__noreturn__, gnu::cold]] inline void fail(const char* op, const argument& a, const text& expected,
                                                  const text& got) {
  text message(op);
  message << ": argument '" << a.name << "'" << a.owner << ": expected " << expected << ", got " << got;
  throw shape_error(message.str());
}

/// A negative number of threads is a slip of whoever computed it, and not OpenMP's choice.
[[gnu::cold]] inline void require_executor(const char* op, const cpu& exec) {
  if (exec.threads < 0) fail(op, {"exec"}, "threads of at least 0", exec.threads);
}
inline void require_executor(const char*, const cuda&) {}

[[gnu::cold]] inline void require_extent(const char* op, const argument& a, std::size_t axis, const char* name,
                                         index_t expected) {
  if (a.view.extent(axis) == expected) return;
  fail(op, a, axis_text(axis, name) << " to be " << expected, a.view.extent(axis));
}

/// The number of groups that d channels fall into must divide d, and 0 groups hold no channel.
[[gnu::cold]] inline void require_divides(const char* op, const argument& a, std::size_t axis, const char* name,
                                          index_t d) {
  const index_t groups = a.view.extent(axis);
  if (groups == 0 ? d == 0 : d % groups == 0) return;
  fail(op, a, axis_text(axis, name) << " to divide d = " << d, groups);
}

inline index_t element_count(const any_view& v) {
  index_t n = 1;
  for (std::size_t i = 0; i < v.rank(); ++i) n *= v.extent(i);
  return n;
}

/// Extents are not negative, and neither the number of elements nor the distance between the first and the last byte
/// leaves 64 bits. Everything after this check may multiply extents and strides freely.
[[gnu::cold]] inline void require_sane(const char* op, const argument& a) {
  // A quarter of the range: the overlap test adds the spans of two views and the distance between them.
  constexpr index_t most = index_t{1} << 61;
  index_t count = 1;
  bool empty = false;
  for (std::size_t i = 0; i < a.view.rank(); ++i) {
    const index_t n = a.view.extent(i);
    if (n < 0) fail(op, a, text("extent ") << i << " to be at least 0", n);
    empty = empty || n == 0;
    if (n != 0 && count > INT64_MAX / n)
      fail(op, a, "fewer than 2^63 elements", text("extents ") << shape_text(a.view));
    count *= n == 0 ? 1 : n;
  }
  if (empty) return;
  index_t span = size_of(a.view.type());
  for (std::size_t i = 0; i < a.view.rank(); ++i) {
    const index_t steps = a.view.extent(i) - 1;
    const index_t stride = a.view.stride(i);
    if (steps == 0 || stride == 0) continue;
    const bool fits = stride > -most && stride < most &&
                      (stride < 0 ? -stride : stride) <= (most - span) / size_of(a.view.type()) / steps;
    if (!fits) {
      fail(op, a, "offsets below 2^61 bytes", text("stride ") << stride << " on axis " << i);
    }
    span += steps * (stride < 0 ? -stride : stride) * size_of(a.view.type());
  }
}

/// The memory behind a view: it exists when there is anything to read or write.
[[gnu::cold]] inline void require_data(const char* op, const argument& a) {
  if (a.view.data() != nullptr || element_count(a.view) == 0) return;
  fail(op, a, text("data for ") << shape_text(a.view) << " = " << element_count(a.view) << " elements",
       "a null pointer");
}

/// An output keeps every element it is given: no axis is broadcast.
[[gnu::cold]] inline void require_output(const char* op, const argument& a) {
  require_data(op, a);
  if (element_count(a.view) == 0) return;
  for (std::size_t i = 0; i < a.view.rank(); ++i) {
    if (a.view.extent(i) > 1 && a.view.stride(i) == 0) {
      fail(op, a, text("a stride other than 0 on axis ") << i << " of an output, whose extent is " << a.view.extent(i),
           "0");
    }
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
