// SPDX-License-Identifier: Apache-2.0

#include "vision/data/pixel_rows.hpp"

#include "common/support/rng.hpp"

#include <algorithm>

namespace examples::vision {

pixel_rows::pixel_rows(const image_set& images) : images_(images), fingerprint_(images.fingerprint()) {}

std::vector<std::uint8_t> pixel_rows::beginning(index_t image, index_t first) const {
  const auto pixels = images_.test().pixels.begin() + image * length();
  std::vector<std::uint8_t> result(static_cast<std::size_t>(first + 1));
  std::copy(pixels, pixels + first, result.begin() + 1);
  return result;
}

std::vector<std::uint8_t> pixel_rows::whole(index_t image) const {
  const auto pixels = images_.test().pixels.begin() + image * length();
  return {pixels, pixels + length()};
}

std::vector<index_t> pixel_rows::one_of_each() const {
  const std::vector<std::uint8_t>& labels = images_.test().labels;
  std::vector<index_t> result;
  for (index_t label = 0; label < images_.classes(); ++label) {
    const auto found = std::find(labels.begin(), labels.end(), static_cast<std::uint8_t>(label));
    if (found != labels.end()) result.push_back(found - labels.begin());
  }
  return result;
}

void pixel_rows::require(index_t context) const {
  if (context != length())
    throw user_error("the images have " + std::to_string(length()) + " pixels, the model's sequences " +
                     std::to_string(context));
}

void pixel_rows::append(const labelled_images& from, index_t image, byte_lm::batch& to) {
  const index_t length = from.rows * from.columns;
  const auto pixels = from.pixels.begin() + image * length;
  to.bytes.push_back(0);
  to.bytes.insert(to.bytes.end(), pixels, pixels + length - 1);
  to.next.insert(to.next.end(), pixels, pixels + length);
}

byte_lm::batch pixel_rows::training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences, index_t) const {
  random_stream random(seed, purpose::batch, step);
  byte_lm::batch result;
  const auto count = static_cast<std::uint64_t>(images_.training().count);
  for (index_t b = 0; b < sequences; ++b) append(images_.training(), static_cast<index_t>(random.below(count)), result);
  return result;
}

index_t pixel_rows::held_out_sequences(index_t) const {
  return images_.test().count;
}

byte_lm::batch pixel_rows::held_out_batch(index_t first, index_t sequences, index_t) const {
  byte_lm::batch result;
  for (index_t b = 0; b < sequences; ++b) append(images_.test(), first + b, result);
  return result;
}

}  // namespace examples::vision
