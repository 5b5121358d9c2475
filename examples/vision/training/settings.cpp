// SPDX-License-Identifier: Apache-2.0

#include "vision/training/settings.hpp"

#include "common/support/positive_number.hpp"
#include "common/support/simd.hpp"
#include "common/support/user_error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

namespace examples::vision {

namespace {

// Half the channels, with whose filters AFT-conv has about as many parameters as attention with its positions; heads of
// attention that are whole vectors.
index_t default_heads(mixer_kind mixer, index_t channels) {
  index_t heads = std::max(channels / (mixer == mixer_kind::conv2d ? 2 : row_multiple), index_t{1});
  while (channels % heads != 0) --heads;
  return heads;
}

// With the rate of the other weights filters find their form late: by AdamW 76.9 % after 20,000 images against 80.4 %
// at 10 times the rate, by Muon 82.6 % against 83.4 %. From 5 times on they grow to one tap each, e^50 and more above
// the others, which is slow and gains nothing. Factors move w by more than their own steps: of rank 32 they come
// to 79.1 % at 1 times the rate, 80.6 % at 4, and 72.1 % at 30.
double default_bias_scale(mixer_kind mixer, index_t bias_rank) {
  if (bias_rank > 0) return 4;
  switch (mixer) {
    case mixer_kind::conv2d: return 2;
    case mixer_kind::full:
    case mixer_kind::local: return 30;
    case mixer_kind::simple:
    case mixer_kind::conv:
    case mixer_kind::attention: return 1;
  }
  return 1;
}

}  // namespace

void add_classify_options(CLI::App& app, command_line& line) {
  const CLI::Validator positive(complaint_unless_positive, "POSITIVE");
  app.add_option("--data", line.data, "Directory of a set of images in IDX files, plain or .gz")->capture_default_str();
  app.add_option("--images", line.images, "Learn from the first so many training images only")->check(positive);
  app.add_option("--test-images", line.test_images, "Test with the first so many test images only")->check(positive);
  app.add_option("--epochs", line.epochs, "How often every training image is seen")->check(positive);
  app.add_option("--matrix-lr", line.matrix_rate,
                 "Highest learning rate of the layers' matrices, by Muon; 0: AdamW as for the rest")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--patch", line.patch, "Side of a patch in pixels")->check(positive);
  app.add_flag("--naive-filter", line.filter.naive, "conv2d: filters without gain and shift (AFT Table 10)");
  app.add_flag("--without-query", line.ungated, "conv2d: no gate (AFT Table 12)");
  app.add_flag("--window-only", line.unconnected,
               "conv2d: nothing outside the filter is seen (AFT, global connectivity)");
  app.add_flag("--one-tap", line.filter.one_tap, "conv2d: one tap a head, by samples while training (AFT Eq. 10)");
  app.add_option("--filter-entropy", line.filter.entropy,
                 "conv2d: weight of the filters' entropy in the loss (AFT Eq. 9)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--filter-gain", line.filter.gain,
                 "conv2d: gain of every filter at the start; the papers' is 0 (AFT Eq. 8)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--test-grids", line.test_grids,
                 "conv2d: test with larger or smaller images too, whose patches are grids of these sides")
      ->delimiter(',')
      ->check(CLI::Range(index_t{1}, index_t{1024}));
  app.add_option(
      "--begin-with", line.begin_with,
      "safetensors of a trained model: its weights, but for queries, keys and positions (AFT, compatibility)");
  app.add_option("--names", line.names, "With --begin-with: a JSON table of this program's names and the file's")
      ->needs("--begin-with");
  add_run_options(
      app, line,
      {.mixer = "conv2d, attention, full, local, simple or all; may be repeated",
       .steps = "Training steps, instead of epochs",
       .batch = "Images a step",
       .heads = "Heads of conv2d (half of --dim by default) and attention (one for 16 channels)",
       .window = "Taps of conv2d along each axis (11 by default); local: |t - s| below it (43)",
       .bias_scale =
           "Learning rate of the position bias over that of the rest (conv2d 2, full and local 30, factors 4)",
       .seed = "Names the initial weights and the order of the images",
       .quick = "conv2d alone on a third of the images, a minute in all"},
      {"--epochs", "--matrix-lr", "--patch", "--naive-filter", "--without-query", "--window-only", "--one-tap",
       "--filter-entropy", "--filter-gain", "--begin-with"});
}

void complete_classify(CLI::App& app, command_line& line) {
  if (line.quick && app.count("--images") == 0) line.images = 20000;
  if (line.quick && app.count("--epochs") == 0) line.epochs = 2;
  complete(line, line.quick ? std::vector<std::string>{"conv2d"} : std::vector<std::string>{"conv2d", "attention"},
           image_mixers);
}

training_settings settings_for(const command_line& line, mixer_kind mixer, const image_set& data) {
  training_settings s;
  s.shape.mixer = mixer;
  s.shape.rows = data.training().rows;
  s.shape.columns = data.training().columns;
  s.shape.patch = line.patch;
  s.shape.channels = line.channels;
  s.shape.layers = line.layers;
  s.shape.heads = line.heads > 0 ? line.heads : default_heads(mixer, line.channels);
  s.shape.window = line.window;
  if (line.window == 0) s.shape.window = mixer == mixer_kind::conv2d ? 11 : 43;
  s.shape.bias_rank = bias_rank_of(mixer, line.bias_rank);
  s.shape.classes = data.classes();
  if (mixer == mixer_kind::conv2d) {
    s.shape.filter = line.filter;
    s.shape.filter.gated = !line.ungated;
    s.shape.filter.connected = !line.unconnected;
  }
  s.batch = line.batch;
  const double images = line.epochs * static_cast<double>(data.training().count);
  const double steps = std::max(1.0, std::floor(images / static_cast<double>(std::max(line.batch, index_t{1}))));
  if (line.steps == 0 && steps > 1e12) throw user_error("--epochs: more steps than anybody can wait for");
  s.steps = line.steps > 0 ? line.steps : static_cast<std::int64_t>(steps);
  s.learning_rate = line.learning_rate;
  s.matrix_rate = line.matrix_rate;
  s.bias_scale = line.bias_scale > 0 ? line.bias_scale : default_bias_scale(mixer, s.shape.bias_rank);
  s.seed = line.seed;
  check(s);
  return s;
}

void check(const training_settings& s) {
  const classifier_shape& m = s.shape;
  const auto in = [](index_t x, index_t low, index_t high) { return x >= low && x <= high; };
  require(in(m.rows, 1, 4096) && in(m.columns, 1, 4096),
          "images of " + std::to_string(m.rows) + " x " + std::to_string(m.columns) + " pixels: out of range");
  require(in(m.patch, 1, 4096) && m.rows % m.patch == 0 && m.columns % m.patch == 0,
          "--patch " + std::to_string(m.patch) + ": expected a divisor of the images' sides, " +
              std::to_string(m.rows) + " and " + std::to_string(m.columns));
  check_blocks(m.channels, m.heads, m.layers);
  check_bias_rank(m.mixer, m.bias_rank);
  require(in(m.window, 1, 65536), "--window " + std::to_string(m.window) + ": out of range");
  require(m.filter.entropy >= 0 && m.filter.entropy < 1e6,
          "--filter-entropy " + std::to_string(m.filter.entropy) + ": out of range");
  require(m.filter.gain >= 0 && m.filter.gain < 1e3,
          "--filter-gain " + std::to_string(m.filter.gain) + ": out of range");
  require(s.matrix_rate >= 0 && s.matrix_rate < 1e3, "--matrix-lr " + std::to_string(s.matrix_rate) + ": out of range");
  require(in(m.classes, 2, 256), "classes: " + std::to_string(m.classes) + ", out of range");
  check_run(s);
}

}  // namespace examples::vision
