// SPDX-License-Identifier: Apache-2.0
//
// Settings as the text that a file of weights keeps beside them.
#pragma once

#include "common/support/user_error.hpp"
#include "common/training/safetensors.hpp"

#include <charconv>

namespace examples {

/// Hexadecimal: it survives the way to text and back without a changed bit.
std::string exact(double x);

/// Reads what a file says of itself. Each function throws user_error if the key is missing or its text is no such
/// value.
class metadata_reader {
 public:
  explicit metadata_reader(const safetensors::metadata& map) : map_(map) {}

  const std::string& text(const std::string& key) const;
  /// Finite, and not below 0.
  double real(const std::string& key) const;
  /// `otherwise` where the key is missing, as below.
  double real(const std::string& key, double otherwise) const { return map_.contains(key) ? real(key) : otherwise; }
  /// `otherwise` where the key is missing: files that were written before there was such a setting.
  template <class Integer>
  Integer integer(const std::string& key, Integer otherwise) const {
    return map_.contains(key) ? integer<Integer>(key) : otherwise;
  }
  template <class Integer>
  Integer integer(const std::string& key) const {
    const std::string& s = text(key);
    Integer value{};
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc{} || end != s.data() + s.size())
      throw user_error("metadata \"" + key + "\" is \"" + s + "\", no whole number");
    return value;
  }

 private:
  const safetensors::metadata& map_;
};

}  // namespace examples
