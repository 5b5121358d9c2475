// SPDX-License-Identifier: Apache-2.0
/// @file text.hpp  Builds the text of an error message out of line.
#pragma once

#include <string>

#include "config.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// A string that grows by <<. Messages are built on failure only, yet a sum of std::strings would be inlined at each of
/// the many places that could fail, and cost every user's compiler seconds: these members are kept out of line.
class text {
 public:
  [[gnu::cold, gnu::noinline]] text() {}
  [[gnu::cold, gnu::noinline]] text(const char* s) : value_(s) {}
  [[gnu::cold, gnu::noinline]] text(index_t n) : value_(std::to_string(n)) {}
  [[gnu::cold, gnu::noinline]] text(const text&) = default;
  [[gnu::cold, gnu::noinline]] ~text() {}

  [[gnu::cold, gnu::noinline]] text& operator<<(const char* s) {
    value_ += s;
    return *this;
  }
  [[gnu::cold, gnu::noinline]] text& operator<<(index_t n) {
    value_ += std::to_string(n);
    return *this;
  }
  text& operator<<(std::size_t n) { return *this << static_cast<index_t>(n); }
  text& operator<<(const text& other) { return *this << other.value_.c_str(); }

  const std::string& str() const { return value_; }

 private:
  std::string value_;
};

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
