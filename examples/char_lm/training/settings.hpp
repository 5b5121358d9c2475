// SPDX-License-Identifier: Apache-2.0
//
// Everything that decides what a training run computes, and what the command line can set.
#pragma once

#include "char_lm/model/model.hpp"
#include "common/training/run_options.hpp"
#include "common/training/run_settings.hpp"

namespace examples::char_lm {

/// A checkpoint holds these: the same settings and the same text give the same losses, bit for bit.
struct training_settings : run_settings {
  model_shape shape;
};

struct command_line : run_line {
  command_line() {
    steps = 500;
    channels = 192;
    window = 32;
  }
  std::filesystem::path text;
  index_t context = 256;
  bool untied_keys = false;
  index_t generate = 400;
  double temperature = 0.8;
  std::string prompt = "In the beginning ";
  bool restart = false;
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

/// Throws user_error if the sizes do not fit together.
void check(const training_settings& settings);

}  // namespace examples::char_lm
