// SPDX-License-Identifier: Apache-2.0

#include "char_lm/training/settings.hpp"

#include "common/support/positive_number.hpp"
#include "common/support/user_error.hpp"

#include <CLI/CLI.hpp>

namespace examples::char_lm {

namespace {

// Both measured on the King James Bible at 500 steps: with the rate of the other weights the bias stays flat.
double default_bias_scale(mixer_kind mixer) {
  switch (mixer) {
    case mixer_kind::local:
    case mixer_kind::full: return 30;
    case mixer_kind::conv: return 10;
    case mixer_kind::simple:
    case mixer_kind::attention:
    case mixer_kind::conv2d: return 1;
  }
  return 1;
}

}  // namespace

parsed parse(int argc, const char* const* argv) {
  parsed result;
  command_line& line = result.line;
  CLI::App app{
      "Trains byte-level causal language models that differ in one part, the mixer, and compares them. Under mpirun\n"
      "each rank has a part of every sequence, where the program was built with an MPI."};
  const CLI::Validator positive(complaint_unless_positive, "POSITIVE");
  app.add_option("--text", line.text, "The text to learn; its last tenth is held out")->required();
  app.add_option("--context", line.context, "Bytes in a sequence")->check(positive);
  app.add_flag("--untied-keys", line.untied_keys, "conv: one key for each channel instead of each head");
  add_run_options(app, line,
                  {.mixer = "local, conv, attention, full, simple or all; may be repeated",
                   .steps = "Training steps",
                   .batch = "Sequences a step",
                   .heads = "Heads of conv (16 by default) and attention (6)",
                   .window = "Keys in the window of local, taps of conv",
                   .bias_scale = "Learning rate of the position bias over that of the rest (local, full 30, conv 10)",
                   .seed = "Names the initial weights and the order of the batches",
                   .quick = "Small models, a minute in all"},
                  {"--context", "--untied-keys"});
  app.add_option(
         "--generate", line.generate,
         "Characters to write in the end; behind --context conv and simple still remember them all, the others\n"
         "begin again with the latter half")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", line.temperature, "Of the written characters")->check(positive);
  app.add_flag("--restart", line.restart, "conv and simple begin again there, too");
  app.add_option("--prompt", line.prompt, "What they go on from");
  result.finished = !parse_arguments(app, argc, argv);
  if (result.finished) return result;
  if (line.quick) {
    const auto unless_given = [&](const char* option, auto& target, auto value) {
      if (app.count(option) == 0) target = value;
    };
    unless_given("--context", line.context, index_t{128});
    unless_given("--dim", line.channels, index_t{96});
    unless_given("--layers", line.layers, index_t{2});
    unless_given("--batch", line.batch, index_t{8});
    unless_given("--steps", line.steps, std::int64_t{1000});
  }
  complete(line, {"local", "conv", "attention"}, all_mixers);
  if (line.prompt.empty()) throw user_error("--prompt is empty");
  return result;
}

void require_cuttable(const command_line& line, int ranks) {
  if (ranks == 1) return;
  for (const mixer_kind mixer : line.mixers)
    require(can_be_cut(mixer), "--mixer " + std::string(name_of(mixer)) + ": its sequences cannot be cut over " +
                                   std::to_string(ranks) + " ranks; expected local, conv, full or simple");
}

training_settings settings_for(const command_line& line, mixer_kind mixer) {
  training_settings s;
  s.shape.mixer = mixer;
  s.shape.context = line.context;
  s.shape.channels = line.channels;
  s.shape.layers = line.layers;
  s.shape.heads = line.heads != 0 ? line.heads : mixer == mixer_kind::conv ? 16 : 6;
  s.shape.window = line.window;
  s.shape.tied_keys = !line.untied_keys;
  s.shape.bias_rank = bias_rank_of(mixer, line.bias_rank);
  s.batch = line.batch;
  s.steps = line.steps;
  s.learning_rate = line.learning_rate;
  s.bias_scale = line.bias_scale != 0 ? line.bias_scale : default_bias_scale(mixer);
  s.seed = line.seed;
  check(s);
  return s;
}

}  // namespace examples::char_lm
