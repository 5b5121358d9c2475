// SPDX-License-Identifier: Apache-2.0

#include "vision/data/image_set.hpp"

#include "common/support/fingerprint.hpp"
#include "common/support/rng.hpp"
#include "common/support/user_error.hpp"
#include "vision/data/idx.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace examples::vision {

namespace {

std::filesystem::path find_file(const std::filesystem::path& directory, const std::string& name) {
  // The second spelling is that of archives that were unpacked by other tools.
  std::string other = name;
  other[other.rfind("-idx")] = '.';
  for (const std::string& stem : {name, other})
    for (const char* ending : {"", ".gz"}) {
      std::filesystem::path file = directory / (stem + ending);
      std::error_code error;
      if (std::filesystem::is_regular_file(file, error)) return file;
    }
  throw user_error("image data: neither " + name + " nor " + name + ".gz is in " + directory.string());
}

labelled_images read_part(const std::filesystem::path& directory, const std::string& part, index_t most) {
  const std::filesystem::path image_file = find_file(directory, part + "-images-idx3-ubyte");
  const std::filesystem::path label_file = find_file(directory, part + "-labels-idx1-ubyte");
  idx_array images = read_idx(image_file, 3);
  idx_array labels = read_idx(label_file, 1);
  if (images.shape[0] != labels.shape[0])
    throw user_error("image data " + image_file.string() + ": " + std::to_string(images.shape[0]) + " images, but " +
                     std::to_string(labels.shape[0]) + " labels in " + label_file.string());
  if (most > images.shape[0])
    throw user_error("image data " + image_file.string() + ": " + std::to_string(images.shape[0]) +
                     " images, not the " + std::to_string(most) + " that were asked for");
  const index_t count = most > 0 ? most : images.shape[0];
  images.values.resize(static_cast<std::size_t>(count * images.shape[1] * images.shape[2]));
  labels.values.resize(static_cast<std::size_t>(count));
  return {count, images.shape[1], images.shape[2], std::move(images.values), std::move(labels.values)};
}

}  // namespace

image_set image_set::read(const std::filesystem::path& directory, index_t training, index_t test) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error))
    throw user_error("image data: not a directory: " + directory.string());
  return {read_part(directory, "train", training), read_part(directory, "t10k", test)};
}

image_set::image_set(labelled_images training, labelled_images test)
    : training_(std::move(training)), test_(std::move(test)) {
  if (training_.rows != test_.rows || training_.columns != test_.columns)
    throw user_error("image data: training images of " + std::to_string(training_.rows) + " x " +
                     std::to_string(training_.columns) + " pixels, test images of " + std::to_string(test_.rows) +
                     " x " + std::to_string(test_.columns));
  classes_ = *std::max_element(training_.labels.begin(), training_.labels.end()) + index_t{1};
  if (classes_ < 2) throw user_error("image data: all training images have the label 0");
  const index_t largest = *std::max_element(test_.labels.begin(), test_.labels.end());
  if (largest >= classes_)
    throw user_error("image data: a test image has the label " + std::to_string(largest) +
                     ", the training labels end at " + std::to_string(classes_ - 1));
  // Whole numbers: exact in any order.
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint8_t x : training_.pixels) {
    sum += x;
    squares += std::uint64_t{x} * x;
  }
  const auto n = static_cast<double>(training_.pixels.size());
  const double mean = static_cast<double>(sum) / n;
  const double variance = static_cast<double>(squares) / n - mean * mean;
  mean_ = static_cast<float>(mean);
  // Blank images stay blank.
  scale_ = variance > 0 ? static_cast<float>(1 / std::sqrt(variance)) : 1.0F;
}

void image_set::append(const labelled_images& from, index_t at, batch& to) const {
  const index_t size = from.rows * from.columns;
  for (index_t i = 0; i < size; ++i)
    to.pixels.push_back((static_cast<float>(from.pixels[static_cast<std::size_t>(at * size + i)]) - mean_) * scale_);
  to.labels.push_back(from.labels[static_cast<std::size_t>(at)]);
}

const std::vector<std::uint32_t>& image_set::order(std::uint64_t seed, std::uint64_t epoch) const {
  if (!order_.empty() && seed == order_seed_ && epoch == order_epoch_) return order_;
  order_.resize(static_cast<std::size_t>(training_.count));
  std::iota(order_.begin(), order_.end(), 0U);
  random_stream random(seed, purpose::batch, epoch);
  for (std::size_t i = order_.size(); i-- > 1;)
    std::swap(order_[i], order_[static_cast<std::size_t>(random.below(i + 1))]);
  order_seed_ = seed;
  order_epoch_ = epoch;
  return order_;
}

image_set::batch image_set::training_batch(std::uint64_t seed, std::uint64_t step, index_t count) const {
  batch result;
  const auto all = static_cast<std::uint64_t>(training_.count);
  const std::uint64_t first = step * static_cast<std::uint64_t>(count);
  for (std::uint64_t at = first; at < first + static_cast<std::uint64_t>(count); ++at)
    append(training_, order(seed, at / all)[static_cast<std::size_t>(at % all)], result);
  return result;
}

image_set::batch image_set::test_batch(index_t first, index_t count) const {
  batch result;
  for (index_t at = first; at < first + count; ++at) append(test_, at, result);
  return result;
}

std::uint64_t image_set::fingerprint() const {
  std::uint64_t hash = empty_fingerprint;
  for (const labelled_images* part : {&training_, &test_})
    for (const std::vector<std::uint8_t>* bytes : {&part->pixels, &part->labels})
      hash = fold_bytes(hash, bytes->data(), bytes->size());
  return hash;
}

}  // namespace examples::vision
