// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include "common/support/user_error.hpp"
#include "common/training/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

namespace {

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string message_of(const std::string& bytes) {
  const scratch_directory directory;
  write_file(directory / "x", bytes);
  try {
    safetensors::file::read(directory / "x");
  } catch (const user_error& e) {
    return e.what();
  }
  return "";
}

template <class T>
std::vector<T> values_of(const safetensors::file& file, const std::string& name) {
  const safetensors::file::tensor& t = file.tensors().at(name);
  std::vector<T> values(t.bytes / sizeof(T));
  std::memcpy(values.data(), file.data(t), t.bytes);
  return values;
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("safetensors: what is written is read") {
  const scratch_directory directory;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<double> b = {0.5};
  safetensors::write(directory / "x", {{"k", "v \"quoted\" \n"}},
                     {{"a", safetensors::dtype::f32, {2, 3}, a.data()},
                      {"b", safetensors::dtype::f64, {}, b.data()},
                      {"none", safetensors::dtype::f32, {0, 3}, a.data()}});
  const auto file = safetensors::file::read(directory / "x");
  CHECK(file.header().at("k") == "v \"quoted\" \n");
  CHECK(file.tensors().size() == 3);
  CHECK(file.tensors().at("a").shape == std::vector<index_t>{2, 3});
  CHECK(values_of<float>(file, "a") == a);
  CHECK(values_of<double>(file, "b") == b);
  CHECK(file.tensors().at("none").bytes == 0);
  // The layout that other readers expect: the length first, the data on a multiple of 8.
  const std::string bytes = read_file(directory / "x");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes[8] == '{');
  CHECK(bytes.size() == 8 + length + 6 * sizeof(float) + sizeof(double));
}

TEST_CASE("safetensors: every flipped bit and every missing end is found") {
  const scratch_directory directory;
  const float a[] = {1, 2, 3};
  safetensors::write(directory / "x", {{"k", "v"}}, {{"a", safetensors::dtype::f32, {3}, a}});
  const std::string good = read_file(directory / "x");
  CHECK(message_of(good).empty());
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    CHECK_FALSE(message_of(good.substr(0, size)).empty());
  }
  CHECK(message_of(good + "x").find("behind the last tensor") != std::string::npos);
  for (std::size_t i = good.size() - sizeof a; i < good.size(); ++i) {
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    CHECK(message_of(flipped).find("checksum") != std::string::npos);
  }
}

TEST_CASE("safetensors: headers that lie") {
  const std::string data(16, 'x');
  const auto has = [&](const std::string& header, const std::string& complaint) {
    const std::string message = message_of(with_length(header, data));
    INFO(header, ": ", message);
    CHECK(message.find(complaint) != std::string::npos);
  };
  has("{", "not a JSON object");
  has("[]", "not a JSON object");
  has("{\"a\":1}", "\"a\": is not an object");
  has("{\"a\":{}}", "no dtype");
  has("{" + tensor("a", "F99", "[4]", "[0,16]") + "}", "unknown dtype \"F99\"");
  has("{" + tensor("a", "F32", "4", "[0,16]") + "}", "no shape");
  has("{" + tensor("a", "F32", "[-4]", "[0,16]") + "}", "no size");
  has("{" + tensor("a", "F32", "[1.5]", "[0,16]") + "}", "no size");
  has("{" + tensor("a", "F32", "[4]", "[0]") + "}", "data_offsets");
  has("{" + tensor("a", "F32", "[4]", "[-16,0]") + "}", "data_offsets");
  has("{" + tensor("a", "F32", "[4]", "[16,0]") + "}", "ends before it begins");
  has("{" + tensor("a", "F32", "[5]", "[0,16]") + "}", "needs 20 bytes for its shape but has 16");
  has("{" + tensor("a", "F32", "[8]", "[0,32]") + "}", "truncated");
  has("{" + tensor("a", "F32", "[9223372036854775807,4]", "[0,16]") + "}", "overflows");
  has("{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[3]", "[4,16]") + "}", "overlaps");
  has("{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[2]", "[8,16]") + "}", "unused bytes");
  has("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", "8 bytes behind the last tensor");
  has("{" + tensor("a", "F32", "[4]", "[0,16]") + "," + tensor("a", "F32", "[4]", "[0,16]") + "}", "occurs twice");
  has("{\"__metadata__\":{\"a\":1}," + tensor("a", "F32", "[4]", "[0,16]") + "}", "not a string");
  has("{\"__metadata__\":7," + tensor("a", "F32", "[4]", "[0,16]") + "}", "not an object");
  CHECK(message_of(std::string(8, '\xFF') + "{}").find("the header claims") != std::string::npos);
}
