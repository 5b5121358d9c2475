// SPDX-License-Identifier: Apache-2.0

#include "common/training/safetensors.hpp"

#include "common/support/atomic_file.hpp"
#include "common/support/fingerprint.hpp"
#include "common/support/user_error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

namespace examples::safetensors {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

constexpr std::size_t length_bytes = 8;
// The format's own limit: a longer header is an attack or not a header.
constexpr std::uint64_t longest_header = 100'000'000;
constexpr const char* checksum_key = "fnv1a";

std::size_t element_bytes(std::string_view type) {
  constexpr std::pair<std::string_view, std::size_t> known[] = {
      {"F64", 8},  {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, bytes] : known)
    if (name == type) return bytes;
  throw user_error("unknown dtype \"" + std::string(type) + "\"");
}

std::string_view name_of(dtype type) {
  return type == dtype::f32 ? "F32" : "F64";
}

/// FNV-1a of the metadata; the data's bytes are folded into it next. The rest of the header needs no sum: names,
/// types and shapes have to be those that the reader expects.
std::uint64_t hash_of(const metadata& entries) {
  std::uint64_t hash = empty_fingerprint;
  for (const auto& [key, value] : entries) {
    if (key == checksum_key) continue;
    // With the zero behind them: "ab", "c" is not "a", "bc".
    hash = fold_bytes(hash, key.c_str(), key.size() + 1);
    hash = fold_bytes(hash, value.c_str(), value.size() + 1);
  }
  return hash;
}

std::size_t checked_product(std::size_t a, std::size_t b) {
  if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) throw user_error("shape overflows");
  return a * b;
}

file::tensor parse_tensor(const nlohmann::json& entry) {
  if (!entry.is_object()) throw user_error("is not an object");
  const auto type = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (type == entry.end() || !type->is_string()) throw user_error("has no dtype");
  if (shape == entry.end() || !shape->is_array()) throw user_error("has no shape");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned())
    throw user_error("has no valid data_offsets");
  file::tensor result{type->get<std::string>(), {}, (*offsets)[0].get<std::size_t>(), 0};
  const auto end = (*offsets)[1].get<std::size_t>();
  if (end < result.offset) throw user_error("ends before it begins");
  result.bytes = end - result.offset;
  std::size_t expected = element_bytes(result.type);
  for (const nlohmann::json& extent : *shape) {
    if (!extent.is_number_unsigned()) throw user_error("has an extent that is no size");
    expected = checked_product(expected, extent.get<std::size_t>());
    result.shape.push_back(extent.get<index_t>());
  }
  if (expected != result.bytes)
    throw user_error("needs " + std::to_string(expected) + " bytes for its shape but has " +
                     std::to_string(result.bytes));
  return result;
}

}  // namespace

void file::parse_header(const std::string& text) {
  // The parser would keep the last of two equal keys in silence.
  std::set<std::string> seen;
  std::string twice;
  const auto note_key = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !seen.insert(key.get<std::string>()).second)
      twice = key.get<std::string>();
    return true;
  };
  const nlohmann::json header = nlohmann::json::parse(text, note_key, false);
  if (header.is_discarded() || !header.is_object()) throw user_error("the header is not a JSON object");
  if (!twice.empty()) throw user_error("tensor \"" + twice + "\" occurs twice");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) throw user_error("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) throw user_error("__metadata__ \"" + key + "\" is not a string");
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    try {
      tensors_[name] = parse_tensor(entry);
    } catch (const user_error& e) {
      throw user_error("tensor \"" + name + "\": " + e.what());
    }
  }
}

void file::check_layout() const {
  std::vector<std::pair<std::size_t, const std::string*>> order;
  for (const auto& [name, t] : tensors_) order.emplace_back(t.offset, &name);
  std::stable_sort(order.begin(), order.end(), [this](const auto& a, const auto& b) {
    // Empty tensors lie before the one that begins where they do.
    return std::pair(a.first, tensors_.at(*a.second).bytes) < std::pair(b.first, tensors_.at(*b.second).bytes);
  });
  std::size_t end = 0;
  for (const auto& [offset, name] : order) {
    const tensor& t = tensors_.at(*name);
    if (offset < end) throw user_error("tensor \"" + *name + "\" overlaps the one before it");
    if (offset > end) throw user_error("there are unused bytes before tensor \"" + *name + "\"");
    if (t.bytes > data_.size() - offset)
      throw user_error("tensor \"" + *name + "\" ends at byte " + std::to_string(offset + t.bytes) + " of " +
                       std::to_string(data_.size()) + ": the file is truncated");
    end = offset + t.bytes;
  }
  if (end != data_.size())
    throw user_error("there are " + std::to_string(data_.size() - end) + " bytes behind the last tensor");
  if (has_checksum() &&
      metadata_.at(checksum_key) != std::to_string(fold_bytes(hash_of(metadata_), data_.data(), data_.size())))
    throw user_error("the checksum is wrong");
}

bool file::has_checksum() const {
  return metadata_.contains(checksum_key);
}

file file::read(const std::filesystem::path& path) {
  const std::string where = "checkpoint " + path.string() + ": ";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) throw user_error(where + "not found");
  if (!std::filesystem::is_regular_file(path, error)) throw user_error(where + "not a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw user_error(where + "cannot be opened");
  std::string all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw user_error(where + "cannot be read");
  try {
    if (all.size() < length_bytes) throw user_error("too short to be a safetensors file");
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), length_bytes);
    if (length > longest_header || length > all.size() - length_bytes)
      throw user_error("the header claims " + std::to_string(length) + " bytes of a file of " +
                       std::to_string(all.size()));
    file result;
    result.parse_header(all.substr(length_bytes, length));
    result.data_ = all.substr(length_bytes + length);
    result.check_layout();
    return result;
  } catch (const user_error& e) {
    throw user_error(where + e.what());
  }
}

void write(const std::filesystem::path& path, const metadata& header, const std::vector<source>& tensors) {
  nlohmann::json json;
  std::size_t end = 0;
  std::uint64_t hash = hash_of(header);
  std::vector<std::pair<const char*, std::size_t>> parts;
  for (const source& t : tensors) {
    std::size_t bytes = element_bytes(name_of(t.type));
    for (const index_t extent : t.shape) bytes *= static_cast<std::size_t>(extent);
    json[t.name] = {{"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
    parts.emplace_back(static_cast<const char*>(t.data), bytes);
    hash = fold_bytes(hash, parts.back().first, bytes);
  }
  json["__metadata__"] = header;
  json["__metadata__"][checksum_key] = std::to_string(hash);
  std::string text = json.dump();
  // Readers may map the data, so they begin on 8 bytes, as the reference writer has it.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  atomic_file out(path);
  out.append(reinterpret_cast<const char*>(&length), length_bytes);
  out.append(text.data(), text.size());
  for (const auto& [data, bytes] : parts) out.append(data, bytes);
  out.commit();
}

}  // namespace examples::safetensors
