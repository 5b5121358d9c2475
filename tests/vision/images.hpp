// SPDX-License-Identifier: Apache-2.0
//
// Small sets of images, in memory and as files.
#pragma once

#include "support/examples/programs.hpp"

#include "common/support/rng.hpp"
#include "vision/data/image_set.hpp"

#include <initializer_list>
#include <zlib.h>

namespace examples::vision::test {

using namespace examples::test;

inline constexpr index_t image_rows = 12;
inline constexpr index_t image_columns = 8;
inline constexpr index_t image_classes = 3;

/// Lines along the rows, along the columns or a chequerboard, under noise: to be learned in a few steps, also by a
/// model that does not know where on an image something is.
inline labelled_images stripes(index_t count, std::uint64_t stream) {
  labelled_images result{.count = count, .rows = image_rows, .columns = image_columns, .pixels = {}, .labels = {}};
  random_stream random(3, stream);
  const auto on = [](index_t label, index_t y, index_t x) {
    return (label == 0 ? y : label == 1 ? x : x + y) % 2 == 0;
  };
  for (index_t i = 0; i < count; ++i) {
    const index_t label = i % image_classes;
    result.labels.push_back(static_cast<std::uint8_t>(label));
    for (index_t y = 0; y < image_rows; ++y)
      for (index_t x = 0; x < image_columns; ++x)
        result.pixels.push_back(static_cast<std::uint8_t>(random.below(90) + (on(label, y, x) ? 120U : 0U)));
  }
  return result;
}

inline image_set small_images() {
  return {stripes(60, 1), stripes(20, 2)};
}

inline std::string idx_header(std::initializer_list<index_t> extents) {
  std::string s = {'\0', '\0', '\b', static_cast<char>(extents.size())};
  for (const index_t n : extents)
    for (const int shift : {24, 16, 8, 0}) s += static_cast<char>((n >> shift) & 255);
  return s;
}

inline void write_compressed(const std::filesystem::path& file, const std::string& bytes) {
  gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(out);
}

inline std::string image_file(const labelled_images& x) {
  return idx_header({x.count, x.rows, x.columns}) + std::string(x.pixels.begin(), x.pixels.end());
}
inline std::string label_file(const labelled_images& x) {
  return idx_header({x.count}) + std::string(x.labels.begin(), x.labels.end());
}

/// The set above as four files; those of the training images are compressed.
inline void write_small_images(const std::filesystem::path& directory) {
  const labelled_images training = stripes(60, 1);
  const labelled_images test = stripes(20, 2);
  write_compressed(directory / "train-images-idx3-ubyte.gz", image_file(training));
  write_compressed(directory / "train-labels-idx1-ubyte.gz", label_file(training));
  write_file(directory / "t10k-images-idx3-ubyte", image_file(test));
  write_file(directory / "t10k-labels-idx1-ubyte", label_file(test));
}

}  // namespace examples::vision::test
