// SPDX-License-Identifier: Apache-2.0

#include "char_lm/data/text.hpp"

#include "common/support/fingerprint.hpp"
#include "common/support/rng.hpp"
#include "common/support/user_error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

namespace examples::char_lm {

text text::read(const std::filesystem::path& file) {
  std::error_code error;
  const auto kind = std::filesystem::status(file, error).type();
  if (kind == std::filesystem::file_type::not_found) throw user_error("text file not found: " + file.string());
  // A directory opens like a file here and only fails when it is read.
  if (kind == std::filesystem::file_type::directory) throw user_error("text is a directory: " + file.string());
  std::ifstream in(file, std::ios::binary);
  if (!in) throw user_error("text file cannot be opened: " + file.string());
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw user_error("text file cannot be read: " + file.string());
  if (bytes.empty()) throw user_error("text file is empty: " + file.string());
  return text(std::move(bytes));
}

text::text(std::vector<std::uint8_t> bytes)
    : bytes_(std::move(bytes)), training_(static_cast<index_t>(bytes_.size()) * 9 / 10) {}

void text::require(index_t context) const {
  const auto size = static_cast<index_t>(bytes_.size());
  // The held-out part is the shorter one.
  if (size - training_ < context + 1)
    throw user_error("the text has " + std::to_string(size) + " bytes; a context of " + std::to_string(context) +
                     " needs at least " + std::to_string(10 * context + 1) + ", a tenth of it is held out");
}

text::batch text::training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences, index_t context) const {
  random_stream random(seed, purpose::batch, step);
  batch result;
  for (index_t b = 0; b < sequences; ++b) {
    const auto starts = static_cast<std::uint64_t>(training_ - context);
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(random.below(starts));
    result.bytes.insert(result.bytes.end(), first, first + context);
    result.next.insert(result.next.end(), first + 1, first + 1 + context);
  }
  return result;
}

index_t text::held_out_sequences(index_t context) const {
  return (static_cast<index_t>(bytes_.size()) - training_ - 1) / context;
}

text::batch text::held_out_batch(index_t first, index_t sequences, index_t context) const {
  const auto begin = bytes_.begin() + training_ + first * context;
  const index_t count = sequences * context;
  return {{begin, begin + count}, {begin + 1, begin + 1 + count}};
}

index_t text::distinct() const {
  std::array<bool, 256> seen{};
  for (const std::uint8_t byte : bytes_) seen[byte] = true;
  return std::count(seen.begin(), seen.end(), true);
}

std::uint64_t text::fingerprint() const {
  return fold_bytes(empty_fingerprint, bytes_.data(), bytes_.size());
}

double entropy(const std::vector<std::uint8_t>& bytes, int order) {
  const std::size_t contexts = order == 0 ? 1 : 256;
  std::vector<double> count(contexts * 256);
  std::vector<double> total(contexts);
  for (std::size_t i = order == 0 ? 0 : 1; i < bytes.size(); ++i) {
    const std::size_t context = order == 0 ? 0 : bytes[i - 1];
    count[context * 256 + bytes[i]] += 1;
    total[context] += 1;
  }
  double bits = 0;
  double all = 0;
  for (std::size_t context = 0; context < contexts; ++context) {
    all += total[context];
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const double n = count[context * 256 + byte];
      if (n > 0) bits -= n * std::log2(n / total[context]);
    }
  }
  return all > 0 ? bits / all : 0;
}

}  // namespace examples::char_lm
