// SPDX-License-Identifier: Apache-2.0
//
// What the command line can set, and what it means for a training run.
#pragma once

#include "common/byte_lm/settings.hpp"
#include "common/training/run_options.hpp"

namespace examples::char_lm {

using namespace byte_lm;

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

/// Throws user_error where several ranks cannot each have a part of a mixer's sequences.
void require_cuttable(const command_line& line, int ranks);

/// The command line's choice for one mixer, with that mixer's own defaults.
training_settings settings_for(const command_line& line, mixer_kind mixer);

}  // namespace examples::char_lm
