// SPDX-License-Identifier: Apache-2.0
/// @file validation.hpp  How a bad call is reported, and the checks that concern one tensor alone.
#pragma once

#include <string>

#include "call.hpp"
#include "errors.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

using detail::argument;
using detail::bias_arguments;
using detail::call;

/// `extent 1 (Tk)`: an axis by its number and by its name in the documentation.
inline std::string axis_text(std::size_t axis, const char* name) {
  return "extent " + std::to_string(axis) + " (" + name + ")";
}

inline std::string shape_text(const any_view& v) {
  std::string text = "(";
  for (std::size_t i = 0; i < v.rank(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(v.extent(i));
  return text + ")";
}

[[noreturn]] inline void fail(const char* op, const argument& a, const std::string& expected, const std::string& got) {
  throw shape_error(std::string(op) + ": argument '" + a.name + "'" + a.owner + ": expected " + expected + ", got " + got);
}

inline void require_extent(const char* op, const argument& a, std::size_t axis, const char* name, index_t expected) {
  if (a.view.extent(axis) == expected) return;
  fail(op, a, axis_text(axis, name) + " to be " + std::to_string(expected), std::to_string(a.view.extent(axis)));
}

/// The number of groups that d channels fall into must divide d, and 0 groups hold no channel.
inline void require_divides(const char* op, const argument& a, std::size_t axis, const char* name, index_t d) {
  const index_t groups = a.view.extent(axis);
  if (groups == 0 ? d == 0 : d % groups == 0) return;
  fail(op, a, axis_text(axis, name) + " to divide d = " + std::to_string(d), std::to_string(groups));
}

inline index_t element_count(const any_view& v) {
  index_t n = 1;
  for (std::size_t i = 0; i < v.rank(); ++i) n *= v.extent(i);
  return n;
}

/// Extents are not negative, and neither the number of elements nor the distance between the first and the last byte
/// leaves 64 bits. Everything after this check may multiply extents and strides freely.
inline void require_sane(const char* op, const argument& a) {
  // A quarter of the range: the overlap test adds the spans of two views and the distance between them.
  constexpr index_t most = index_t{1} << 61;
  index_t count = 1;
  bool empty = false;
  for (std::size_t i = 0; i < a.view.rank(); ++i) {
    const index_t n = a.view.extent(i);
    if (n < 0) fail(op, a, "extent " + std::to_string(i) + " to be at least 0", std::to_string(n));
    empty = empty || n == 0;
    if (n != 0 && count > INT64_MAX / n) fail(op, a, "fewer than 2^63 elements", "extents " + shape_text(a.view));
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
      fail(op, a, "offsets below 2^61 bytes", "stride " + std::to_string(stride) + " on axis " + std::to_string(i));
    }
    span += steps * (stride < 0 ? -stride : stride) * size_of(a.view.type());
  }
}

/// The memory behind a view: it exists when there is anything to read or write.
inline void require_data(const char* op, const argument& a) {
  if (a.view.data() != nullptr || element_count(a.view) == 0) return;
  fail(op, a, "data for " + shape_text(a.view) + " = " + std::to_string(element_count(a.view)) + " elements", "a null pointer");
}

/// An output keeps every element it is given: no axis is broadcast.
inline void require_output(const char* op, const argument& a) {
  require_data(op, a);
  if (element_count(a.view) == 0) return;
  for (std::size_t i = 0; i < a.view.rank(); ++i) {
    if (a.view.extent(i) > 1 && a.view.stride(i) == 0) {
      fail(op, a, "a stride other than 0 on axis " + std::to_string(i) + " of an output, whose extent is " +
                      std::to_string(a.view.extent(i)), "0");
    }
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
