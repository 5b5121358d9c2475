// SPDX-License-Identifier: Apache-2.0
//
// What `vision pixels` can be told.
#pragma once

#include "common/byte_lm/settings.hpp"
#include "common/training/run_options.hpp"
#include "vision/data/pixel_rows.hpp"

namespace examples::vision {

struct pixels_line : run_line {
  pixels_line() {
    steps = 1500;
    batch = 8;
    channels = 64;
    window = 65;
    bias_rank = 64;
  }
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist";
  index_t images = 0;       // 0: all
  index_t test_images = 0;  // 0: all
  index_t given = 0;        // rows of an image that is continued; 0: half of them
  double temperature = 1;
};

void add_pixels_options(CLI::App& app, pixels_line& line);
/// What was not given. Throws user_error.
void complete_pixels(CLI::App& app, pixels_line& line);

/// The command line's choice for one mixer on these images. Throws user_error.
byte_lm::training_settings settings_for(const pixels_line& line, mixer_kind mixer, const pixel_rows& data);

}  // namespace examples::vision
