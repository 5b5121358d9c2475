// SPDX-License-Identifier: Apache-2.0

#include "common/training/metadata.hpp"

#include <cmath>

namespace examples {

std::string exact(double x) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::hex).ptr;
  return {text, end};
}

const std::string& metadata_reader::text(const std::string& key) const {
  const auto found = map_.find(key);
  if (found == map_.end()) throw user_error("metadata \"" + key + "\" is missing");
  return found->second;
}

double metadata_reader::real(const std::string& key) const {
  const std::string& s = text(key);
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, std::chars_format::hex);
  if (error != std::errc{} || end != s.data() + s.size() || !std::isfinite(value) || value < 0)
    throw user_error("metadata \"" + key + "\" is \"" + s + "\", no number");
  return value;
}

}  // namespace examples
