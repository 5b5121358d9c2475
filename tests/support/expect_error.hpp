// SPDX-License-Identifier: Apache-2.0
/// @file expect_error.hpp  Runs a call that must be refused, and looks at what it says and at what it left alone.
#pragma once

#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace aft::test {

/// The text of the shape_error that f throws, or a text that says it threw none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const shape_error& e) {
    return e.what();
  }
  return "no shape_error";
}

/// Fails the running test where a part is missing from the message.
inline void check_parts(const std::string& message, std::initializer_list<const char*> wanted) {
  for (const char* part : wanted) {
    CAPTURE(part);
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  }
}

/// Output memory that shows whether anything was written to it.
template <class T>
class canary {
 public:
  explicit canary(index_t size) : values_(static_cast<std::size_t>(size), value()) {}
  T* data() { return values_.data(); }
  void reset() { values_.assign(values_.size(), value()); }
  bool untouched() const {
    for (const T& x : values_) {
      if (!(x == value())) return false;
    }
    return true;
  }

 private:
  static T value() { return static_cast<T>(42.0f); }
  std::vector<T> values_;
};

}  // namespace aft::test
