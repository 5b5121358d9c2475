// SPDX-License-Identifier: Apache-2.0

#include "common/training/run_options.hpp"

#include "common/support/parallel.hpp"
#include "common/support/positive_number.hpp"
#include "common/support/user_error.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

namespace examples {

void add_run_options(CLI::App& app, run_line& line, const run_words& words, const std::vector<std::string>& fixed) {
  const CLI::Validator positive(complaint_unless_positive, "POSITIVE");
  app.add_option("--mixer", line.names, words.mixer)->delimiter(',');
  app.add_option("--steps", line.steps, words.steps)->check(positive);
  app.add_option("--batch", line.batch, words.batch)->check(positive);
  app.add_option("--dim", line.channels, "Channels, a multiple of 16")->check(positive);
  app.add_option("--layers", line.layers, "Blocks")->check(positive);
  app.add_option("--heads", line.heads, words.heads)->check(positive);
  app.add_option("--window", line.window, words.window)->check(positive);
  app.add_option("--bias-rank", line.bias_rank,
                 "full, local: learn the position bias as two factors of this rank (AFT Eq. 7); 0: whole")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", line.learning_rate, "Highest learning rate")->check(positive);
  app.add_option("--bias-lr-scale", line.bias_scale, words.bias_scale)->check(positive);
  app.add_option("--seed", line.seed, words.seed);
  app.add_option("--threads", line.threads, "Threads; OpenMP's choice by default")->check(CLI::Range(1, 1024));
  app.add_option("--save", line.save, "Checkpoint to write (safetensors); with several mixers one for each");
  CLI::Option* load = app.add_option("--load", line.load, "Checkpoint to go on from; the model's shape comes from it");
  app.add_option("--save-every", line.save_every, "Steps between two checkpoints")->check(positive);
  app.add_option("--stop-at", line.stop_at, "Stop after this step as if interrupted")->check(positive);
  app.add_option("--out", line.out, "Directory for results.json");
  app.add_flag("--eval-only", line.eval_only, "With --load: no training");
  app.add_flag("--quick", line.quick, words.quick);
  // A checkpoint goes on as it began; the same option with another value would be ignored.
  for (const char* always : {"--steps", "--batch", "--dim", "--layers", "--heads", "--window", "--bias-rank", "--lr",
                             "--bias-lr-scale", "--seed", "--quick"})
    app.get_option(always)->excludes(load);
  for (const std::string& own : fixed) app.get_option(own)->excludes(load);
}

bool parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help, std::cout, std::cerr);
    return false;
  } catch (const CLI::ParseError& e) {
    throw user_error(e.what());
  }
  return true;
}

void complete(run_line& line, const std::vector<std::string>& mixers, std::span<const mixer_kind> among) {
  // Without a name a checkpoint's own mixer is meant.
  if (line.names.empty() && line.load.empty()) line.names = mixers;
  line.mixers = mixers_named(line.names, among);
  if (line.eval_only && line.load.empty()) throw user_error("--eval-only needs --load");
  if (line.threads == 0) line.threads = hardware_threads();
}

std::filesystem::path file_for(const run_line& line, const std::filesystem::path& file, mixer_kind mixer) {
  return line.mixers.size() == 1 ? file : file_of_mixer(file, mixer);
}

}  // namespace examples
