// SPDX-License-Identifier: Apache-2.0
//
// The command line that all the programs have: which mixers, how long, from which file and to which.
#pragma once

#include "common/mixers/mixer.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace examples {

/// A program's own line adds to it, and has defaults of its own.
struct run_line {
  std::vector<mixer_kind> mixers;  // empty: the one of `load`
  std::filesystem::path save;
  std::filesystem::path load;
  std::filesystem::path out;
  std::int64_t steps = 0;
  std::int64_t stop_at = 0;  // 0: at the end
  std::int64_t save_every = 100;
  index_t batch = 16;
  index_t channels = 32;
  index_t layers = 4;
  index_t heads = 0;      // 0: each mixer's own
  index_t window = 0;     // 0: each mixer's own, where it has one
  index_t bias_rank = 0;  // 0: the bias is learned whole
  double learning_rate = 3e-3;
  double bias_scale = 0;  // 0: each mixer's own
  std::uint64_t seed = 1;
  int threads = 0;
  bool quick = false;
  bool eval_only = false;
  std::vector<std::string> names;  // of mixers, as they were given
};

/// What a program's help says of options that mean something of its own.
struct run_words {
  const char *mixer, *steps, *batch, *heads, *window, *bias_scale, *seed, *quick;
};

/// Adds the options of run_line. --load excludes those that a checkpoint says, and the program's own of `fixed`.
void add_run_options(CLI::App& app, run_line& line, const run_words& words, const std::vector<std::string>& fixed);

/// False if help was asked for and printed. Throws user_error.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

/// Mixers, of `among`, and threads that were not named. Throws user_error.
void complete(run_line& line, const std::vector<std::string>& mixers, std::span<const mixer_kind> among);

/// With several mixers each has a file of its own: model.safetensors becomes model-conv.safetensors.
std::filesystem::path file_for(const run_line& line, const std::filesystem::path& file, mixer_kind mixer);

}  // namespace examples
