// SPDX-License-Identifier: Apache-2.0
//
// Everything that decides what a training run computes, and what the command line can set.
#pragma once

#include "char_lm/model/model.hpp"
#include "common/training/run_settings.hpp"

#include <filesystem>

namespace examples::char_lm {

/// A checkpoint holds these: the same settings and the same text give the same losses, bit for bit.
struct training_settings : run_settings {
  model_shape shape;
};

struct command_line {
  std::vector<mixer_kind> mixers;  // empty: the one of `load`
  std::filesystem::path text;
  std::filesystem::path save;
  std::filesystem::path load;
  std::filesystem::path out;
  std::int64_t steps = 500;
  std::int64_t stop_at = 0;  // 0: at the end
  std::int64_t save_every = 100;
  index_t batch = 16;
  index_t context = 256;
  index_t channels = 192;
  index_t layers = 4;
  index_t heads = 0;  // 0: each mixer's own
  index_t window = 32;
  bool untied_keys = false;
  double learning_rate = 3e-3;
  double bias_scale = 0;  // 0: each mixer's own
  std::uint64_t seed = 1;
  int threads = 0;
  index_t generate = 400;
  double temperature = 0.8;
  std::string prompt = "In the beginning ";
  bool restart = false;
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

/// The command line's choice for one mixer, with that mixer's own defaults.
training_settings settings_for(const command_line& line, mixer_kind mixer);

/// With several mixers each has a file of its own: model.safetensors becomes model-conv.safetensors.
std::filesystem::path file_for(const command_line& line, const std::filesystem::path& file, mixer_kind mixer);

/// Throws user_error if the sizes do not fit together.
void check(const training_settings& settings);

}  // namespace examples::char_lm
