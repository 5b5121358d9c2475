// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"

#include "common/support/user_error.hpp"
#include "vision/data/idx.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace examples;
using namespace examples::vision;
using namespace examples::vision::test;

namespace {

void check_idx_refused(const std::filesystem::path& file, std::size_t rank, const char* complaint) {
  std::string message;
  try {
    read_idx(file, rank);
  } catch (const user_error& e) {
    message = e.what();
  }
  INFO(file.string(), ": ", message);
  CHECK(message.find(complaint) != std::string::npos);
  // Which of four files it is.
  CHECK(message.find(file.filename().string()) != std::string::npos);
}

}  // namespace

TEST_CASE("idx: values and shape, plain and compressed") {
  const scratch_directory directory;
  const std::string bytes = idx_header({2, 1, 3}) + std::string("\x00\x01\x7f\x80\xfe\xff", 6);
  write_file(directory / "plain", bytes);
  write_compressed(directory / "compressed", bytes);
  for (const char* name : {"plain", "compressed"}) {
    INFO(name);
    const idx_array read = read_idx(directory / name, 3);
    CHECK(read.shape == std::vector<index_t>{2, 1, 3});
    CHECK(read.values == std::vector<std::uint8_t>{0, 1, 127, 128, 254, 255});
  }
}

TEST_CASE("idx: files that are cut off, of another form or empty") {
  const scratch_directory directory;
  const auto refused = [&](const std::string& bytes, const char* complaint, std::size_t rank = 1) {
    write_file(directory / "x", bytes);
    check_idx_refused(directory / "x", rank, complaint);
    // Compressed, the same bytes are as wrong.
    write_compressed(directory / "x", bytes);
    check_idx_refused(directory / "x", rank, complaint);
  };
  const std::string labels = idx_header({4});
  refused("", "too short");
  refused(labels.substr(0, 3), "too short");
  refused(labels.substr(0, 6), "truncated within its header");
  refused(labels + "abc", "truncated: 3 of 4 values");
  refused(labels + "abcde", "goes on behind its 4 values");
  refused("P5 28 28 255", "not an IDX file");
  refused(std::string("\0\0\x0d\1", 4) + labels.substr(4) + "abcd", "type 13, expected 8");
  refused(labels + "abcd", "rank 1, expected 3, images", 3);
  refused(idx_header({0}), "holds no data");
  refused(idx_header({2, 0, 3}), "holds no data", 3);
  refused(idx_header({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}), "more values than there can be", 3);
  // As much as a header may claim, without the memory for it.
  refused(idx_header({8192, 1024, 1024}) + "abc", "truncated: 3 of 8589934592 values", 3);
  check_idx_refused(directory / "none", 1, "cannot be opened");
}

TEST_CASE("idx: a compressed file that is cut off anywhere, or damaged, is refused") {
  const scratch_directory directory;
  const labelled_images x = stripes(6, 4);
  write_compressed(directory / "good", image_file(x));
  const std::string good = read_file(directory / "good");
  REQUIRE(read_idx(directory / "good", 3).values == x.pixels);
  for (std::size_t size = 20; size < good.size(); size += 1 + size / 40) {
    INFO(size, " of ", good.size());
    write_file(directory / "cut", good.substr(0, size));
    CHECK_THROWS_AS(read_idx(directory / "cut", 3), user_error);
  }
  for (const std::size_t size : {good.size() - 9, good.size() - 8, good.size() - 4, good.size() - 1}) {
    INFO(size, " of ", good.size());
    write_file(directory / "cut", good.substr(0, size));
    CHECK_THROWS_AS(read_idx(directory / "cut", 3), user_error);
  }
  std::string flipped = good;
  flipped[good.size() - 6] = static_cast<char>(flipped[good.size() - 6] ^ 1);
  write_file(directory / "flipped", flipped);
  check_idx_refused(directory / "flipped", 3, "cannot be read");
}

TEST_CASE("images: a directory of four files comes back") {
  const scratch_directory directory;
  write_small_images(directory.path());
  const image_set read = image_set::read(directory.path(), 0, 0);
  const image_set expected = small_images();
  CHECK(read.training().pixels == expected.training().pixels);
  CHECK(read.training().labels == expected.training().labels);
  CHECK(read.test().pixels == expected.test().pixels);
  CHECK(read.classes() == image_classes);
  CHECK(read.fingerprint() == expected.fingerprint());
  const image_set fewer = image_set::read(directory.path(), 30, 5);
  CHECK(fewer.training().count == 30);
  CHECK(fewer.test().pixels.size() == 5 * image_rows * image_columns);
  CHECK(fewer.fingerprint() != expected.fingerprint());
}

TEST_CASE("images: files that are missing or do not fit together") {
  const scratch_directory directory;
  const auto refused = [&](const char* complaint) {
    CHECK_THROWS_WITH_AS(image_set::read(directory.path(), 0, 0), doctest::Contains(complaint), user_error);
  };
  CHECK_THROWS_WITH_AS(image_set::read(directory / "none", 0, 0), doctest::Contains("not a directory"), user_error);
  refused("train-images-idx3-ubyte");
  write_small_images(directory.path());
  CHECK_THROWS_WITH_AS(image_set::read(directory.path(), 61, 0), doctest::Contains("60 images, not the 61"),
                       user_error);
  const std::filesystem::path labels = directory / "t10k-labels-idx1-ubyte";
  write_file(labels, label_file(stripes(19, 2)));
  refused("20 images, but 19 labels");
  labelled_images other = stripes(20, 2);
  other.labels[7] = 3;
  write_file(labels, label_file(other));
  refused("a test image has the label 3, the training labels end at 2");
  write_file(labels, label_file(stripes(20, 2)));
  std::swap(other.rows, other.columns);
  write_file(directory / "t10k-images-idx3-ubyte", image_file(other));
  refused("test images of 8 x 12");
  labelled_images same = stripes(20, 2);
  std::fill(same.labels.begin(), same.labels.end(), std::uint8_t{0});
  CHECK_THROWS_WITH_AS(image_set(same, same), doctest::Contains("label 0"), user_error);
}

TEST_CASE("images: every epoch has each training image once, in an order that the seed and the epoch name") {
  const image_set data = small_images();
  constexpr index_t size = image_rows * image_columns;
  std::vector<std::vector<float>> seen;
  // 60 images in steps of 8: the eighth step has the end of one epoch and the start of the next.
  for (std::uint64_t step = 0; step < 15; ++step) {
    const image_set::batch batch = data.training_batch(5, step, 8);
    REQUIRE(batch.count() == 8);
    for (index_t i = 0; i < 8; ++i)
      seen.emplace_back(batch.pixels.begin() + i * size, batch.pixels.begin() + (i + 1) * size);
  }
  const std::set<std::vector<float>> first(seen.begin(), seen.begin() + 60), second(seen.begin() + 60, seen.end());
  CHECK(first.size() == 60);
  CHECK(first == second);
  CHECK_FALSE(std::equal(seen.begin(), seen.begin() + 60, seen.begin() + 60));
  CHECK(data.training_batch(5, 3, 8).pixels == small_images().training_batch(5, 3, 8).pixels);
  CHECK(data.training_batch(6, 3, 8).pixels != data.training_batch(5, 3, 8).pixels);
}

TEST_CASE("images: training pixels have mean 0 and deviation 1") {
  const image_set data = small_images();
  const image_set::batch all = data.training_batch(1, 0, 60);
  double sum = 0;
  double squares = 0;
  for (const float x : all.pixels) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  const auto n = static_cast<double>(all.pixels.size());
  // Each pixel is a rounded float below 4 in size.
  CHECK(std::abs(sum / n) < 1e-6);
  CHECK(squares / n == doctest::Approx(1).epsilon(1e-6));
}
