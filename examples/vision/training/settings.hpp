// SPDX-License-Identifier: Apache-2.0
//
// Everything that decides what a training run computes, and what the command line can set.
#pragma once

#include "common/training/run_options.hpp"
#include "common/training/run_settings.hpp"
#include "vision/data/image_set.hpp"
#include "vision/model/classifier.hpp"

namespace examples::vision {

/// A checkpoint holds these: the same settings and the same images give the same losses, bit for bit.
struct training_settings : run_settings {
  classifier_shape shape;
  double matrix_rate = 0;  // Muon's; 0: AdamW alone
};

struct command_line : run_line {
  command_line() {
    save_every = 500;
    learning_rate = 5e-3;
    // Filters that begin flat, as the papers', have to find out first where to look. By Muon, one pass: 86.5 % at a
    // gain of 0, 87.7 % at 3, 88.3 % at 6, where each looks at some places of its own.
    filter.gain = 6;
  }
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist";
  index_t images = 0;       // 0: all
  index_t test_images = 0;  // 0: all
  double epochs = 3;        // where no steps are given
  index_t patch = 2;
  double matrix_rate = 0.02;
  filter_choices filter;
  std::vector<index_t> test_grids;            // sides
  std::filesystem::path begin_with, names;    // another model's weights, and what they are called there
  bool ungated = false, unconnected = false;  // what of `filter` the command line turns off
};

void add_classify_options(CLI::App& app, command_line& line);
/// What was not given. Throws user_error.
void complete_classify(CLI::App& app, command_line& line);

/// The command line's choice for one mixer on these images, with that mixer's own defaults. Throws user_error.
training_settings settings_for(const command_line& line, mixer_kind mixer, const image_set& data);

/// Throws user_error if the sizes do not fit together.
void check(const training_settings& settings);

}  // namespace examples::vision
