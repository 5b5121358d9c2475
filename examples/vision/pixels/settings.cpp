// SPDX-License-Identifier: Apache-2.0

#include "vision/pixels/settings.hpp"

#include "common/support/positive_number.hpp"

#include <CLI/CLI.hpp>

namespace examples::vision {

void add_pixels_options(CLI::App& app, pixels_line& line) {
  const CLI::Validator positive(complaint_unless_positive, "POSITIVE");
  app.add_option("--data", line.data, "Directory of a set of images in IDX files, plain or .gz")->capture_default_str();
  app.add_option("--images", line.images, "Learn from the first so many training images only")->check(positive);
  app.add_option("--test-images", line.test_images, "Test with the first so many test images only")->check(positive);
  app.add_option("--given", line.given, "Rows of the images that are continued, half of them by default")
      ->check(positive);
  app.add_option("--temperature", line.temperature, "Of the pixels that are drawn")->check(positive);
  add_run_options(app, line,
                  {.mixer = "local, attention, full, simple, conv or all; may be repeated",
                   .steps = "Training steps",
                   .batch = "Images a step",
                   .heads = "Heads of attention (one for 16 channels) and conv (16)",
                   .window = "Keys in the window of local, taps of conv",
                   .bias_scale = "Learning rate of the position bias over that of the rest (local, full, conv 10)",
                   .seed = "Names the initial weights and the order of the images",
                   .quick = "AFT-local alone, a small model, a minute in all"},
                  {});
}

void complete_pixels(CLI::App& app, pixels_line& line) {
  const auto unless_given = [&](const char* option, auto& target, auto value) {
    if (app.count(option) == 0) target = value;
  };
  if (line.quick) {
    unless_given("--dim", line.channels, index_t{32});
    unless_given("--layers", line.layers, index_t{2});
    unless_given("--steps", line.steps, std::int64_t{150});
    unless_given("--test-images", line.test_images, index_t{200});
  }
  complete(line, line.quick ? std::vector<std::string>{"local"} : std::vector<std::string>{"local", "attention"},
           all_mixers);
}

byte_lm::training_settings settings_for(const pixels_line& line, mixer_kind mixer, const pixel_rows& data) {
  byte_lm::training_settings s;
  s.shape.mixer = mixer;
  s.shape.context = data.length();
  s.shape.channels = line.channels;
  s.shape.layers = line.layers;
  s.shape.heads = line.heads;
  if (line.heads == 0) s.shape.heads = mixer == mixer_kind::conv ? 16 : std::max(line.channels / 16, index_t{1});
  s.shape.window = std::min(line.window, data.length());
  s.shape.bias_rank = bias_rank_of(mixer, line.bias_rank);
  s.batch = line.batch;
  s.steps = line.steps;
  s.learning_rate = line.learning_rate;
  s.bias_scale = line.bias_scale;
  if (line.bias_scale == 0) s.bias_scale = mixer == mixer_kind::attention || mixer == mixer_kind::simple ? 1 : 10;
  s.seed = line.seed;
  byte_lm::check(s);
  return s;
}

}  // namespace examples::vision
