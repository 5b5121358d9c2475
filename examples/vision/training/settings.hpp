// SPDX-License-Identifier: Apache-2.0
//
// Everything that decides what a training run computes, and what the command line can set.
#pragma once

#include "common/training/run_settings.hpp"
#include "vision/data/image_set.hpp"
#include "vision/model/classifier.hpp"

#include <string>

namespace examples::vision {

/// A checkpoint holds these: the same settings and the same images give the same losses, bit for bit.
struct training_settings : run_settings {
  classifier_shape shape;
};

struct command_line {
  std::vector<mixer_kind> mixers;  // empty: the one of `load`
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist";
  std::filesystem::path save;
  std::filesystem::path load;
  std::filesystem::path out;
  index_t images = 0;       // 0: all
  index_t test_images = 0;  // 0: all
  double epochs = 2;
  std::int64_t steps = 0;    // 0: those of `epochs`
  std::int64_t stop_at = 0;  // 0: at the end
  std::int64_t save_every = 500;
  index_t batch = 16;
  index_t patch = 2;
  index_t channels = 32;
  index_t layers = 4;
  index_t heads = 0;   // 0: each mixer's own
  index_t window = 0;  // 0: each mixer's own
  double learning_rate = 5e-3;
  double bias_scale = 0;  // 0: each mixer's own
  std::uint64_t seed = 1;
  int threads = 0;
  bool quick = false;
  bool eval_only = false;
};

/// What was asked for with the help text or instead of it.
struct parsed {
  command_line line;
  bool finished = false;  // help was printed
};

/// Throws user_error for anything that cannot be run.
parsed parse(int argc, const char* const* argv);

/// The command line's choice for one mixer on these images, with that mixer's own defaults. Throws user_error.
training_settings settings_for(const command_line& line, mixer_kind mixer, const image_set& data);

/// With several mixers each has a file of its own: model.safetensors becomes model-conv2d.safetensors.
std::filesystem::path file_for(const command_line& line, const std::filesystem::path& file, mixer_kind mixer);

/// Throws user_error if the sizes do not fit together.
void check(const training_settings& settings);

}  // namespace examples::vision
