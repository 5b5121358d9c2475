// SPDX-License-Identifier: Apache-2.0
//
// What a finished run says: the table on the terminal, the JSON that the pictures are made from.
#pragma once

#include "vision/training/training.hpp"

#include <cstdio>

namespace examples::vision {

/// The same model on images of another size.
struct rescaled {
  index_t side;  // of the grid of patches
  evaluation tested;
};

struct result {
  training_settings settings;
  index_t parameters = 0;
  index_t test_images = 0;
  evaluation tested;
  double mixer_milliseconds = 0;
  double step_milliseconds = 0;
  std::size_t peak_bytes = 0;
  history past;
  struct bias {
    std::vector<index_t> shape;
    std::vector<float> values;  // as the operator gets them
  };
  std::vector<rescaled> others;  // grids
  std::string begun_with;        // the file of another model's weights, where there is one
  std::vector<bias> biases;      // one a layer; none for attention and simple
  std::vector<looked_at> looks;  // conv2d
  double accuracy() const { return accuracy_of(tested); }
  double accuracy_of(const evaluation& e) const {
    return static_cast<double>(e.right) / static_cast<double>(test_images);
  }
};

void print_table(std::FILE* out, const std::vector<result>& results);

/// Throws user_error.
void write_json(const std::filesystem::path& file, const std::vector<result>& results, const std::string& data_name,
                const image_set& data, int threads);

}  // namespace examples::vision
