// SPDX-License-Identifier: Apache-2.0
//
// Images as sequences of pixels: what a model sees, runs that go on, and the program.
#include "images.hpp"
#include "support/examples/resumed_run.hpp"

#include "common/byte_lm/training.hpp"
#include "vision/data/pixel_rows.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

using namespace examples;
using namespace examples::vision;
using namespace examples::vision::test;

namespace {

constexpr index_t length = image_rows * image_columns;

byte_lm::training_settings settings_of(mixer_kind mixer, index_t bias_rank) {
  byte_lm::training_settings s;
  s.shape = {
      .mixer = mixer, .context = length, .channels = 16, .layers = 1, .heads = 2, .window = 9, .bias_rank = bias_rank};
  s.batch = 3;
  s.steps = 9;
  return s;
}

std::string pixels() {
  return std::string(VISION_PROGRAM) + " pixels";
}
constexpr const char* small = " --dim 16 --layers 1 --window 9 --bias-rank 4 --batch 3 --threads 2";

void check_refuses(const std::string& arguments, const std::string& complaint) {
  const outcome result = run_command(pixels() + arguments + " 2>&1 >/dev/null");
  INFO(arguments, ": ", result.output);
  CHECK(result.status == 2);
  CHECK(result.output.find(complaint) != std::string::npos);
  CHECK(result.output.starts_with("vision: "));
}

}  // namespace

TEST_CASE("pixels: every pixel is said by those before it, the first by a black one") {
  const image_set images = small_images();
  const pixel_rows data(images);
  REQUIRE(data.length() == length);
  REQUIRE(data.held_out_sequences(length) == images.test().count);
  const auto check = [&](const byte_lm::batch& one, index_t count) {
    REQUIRE(static_cast<index_t>(one.bytes.size()) == count * length);
    REQUIRE(one.next.size() == one.bytes.size());
    for (index_t i = 0; i < count * length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      CHECK(one.bytes[at] == (i % length == 0 ? 0 : one.next[at - 1]));
    }
  };
  const byte_lm::batch held_out = data.held_out_batch(4, 3, length);
  check(held_out, 3);
  CHECK(std::equal(held_out.next.begin(), held_out.next.end(), images.test().pixels.begin() + 4 * length));

  // Training images, whole, others in every step, the same again for the same step.
  const byte_lm::batch step = data.training_batch(1, 0, 5, length);
  check(step, 5);
  const std::vector<std::uint8_t>& pixels_of_all = images.training().pixels;
  for (index_t b = 0; b < 5; ++b) {
    bool found = false;
    for (index_t i = 0; i < images.training().count; ++i)
      found = found || std::equal(step.next.begin() + b * length, step.next.begin() + (b + 1) * length,
                                  pixels_of_all.begin() + i * length);
    CHECK(found);
  }
  CHECK(data.training_batch(1, 0, 5, length).next == step.next);
  CHECK(data.training_batch(1, 1, 5, length).next != step.next);
  CHECK(data.training_batch(2, 0, 5, length).next != step.next);

  std::vector<std::uint8_t> beginning = data.beginning(7, 24);
  CHECK(beginning.size() == 25);
  CHECK(beginning[0] == 0);
  const std::vector<std::uint8_t> whole = data.whole(7);
  CHECK(whole.size() == static_cast<std::size_t>(length));
  CHECK(std::equal(beginning.begin() + 1, beginning.end(), whole.begin()));
  CHECK(data.one_of_each() == std::vector<index_t>{0, 1, 2});
  CHECK_THROWS_WITH_AS(data.require(length + 1), "the images have 96 pixels, the model's sequences 97", user_error);
}

TEST_CASE("pixels: an interrupted run goes on to the same losses, bit for bit, also of a bias in two factors") {
  const scratch_directory directory;
  const image_set images = small_images();
  const pixel_rows data(images);
  for (const auto& [mixer, bias_rank] : {std::pair{mixer_kind::local, index_t{4}},
                                         {mixer_kind::full, index_t{4}},
                                         {mixer_kind::attention, index_t{0}}}) {
    INFO(name_of(mixer));
    check_resumes<byte_lm::training>(
        settings_of(mixer, bias_rank), data, directory / "run.safetensors",
        [](const std::filesystem::path& file) { return byte_lm::read_checkpoint(file, pixel_rows::checkpoints); },
        [](byte_lm::training& a, byte_lm::training& b) { CHECK(a.held_out_bits() == b.held_out_bits()); });
  }
  // Factors are what is learned, and they move.
  byte_lm::training run(settings_of(mixer_kind::local, 4), data, 1);
  int factors = 0;
  for (const parameter<float>* p : run.network().parameters())
    if (p->kind == role::position_bias) {
      ++factors;
      CHECK(p->shape == std::vector<index_t>{length, 4});
    }
  CHECK(factors == 2);
  CHECK(run.network().position_bias(0) == nullptr);
}

TEST_CASE("pixels: the program") {
  const scratch_directory directory;
  write_small_images(directory.path());
  const std::string base = pixels() + " --data " + directory.path().string();
  const auto results = [&](const char* name) {
    return nlohmann::json::parse(read_file(directory / name / "results.json"));
  };
  CHECK(run_command(pixels() + " --help").output.find("--given") != std::string::npos);

  const std::string save = " --save " + (directory / "run.safetensors").string();
  const std::string load = " --load " + (directory / "run.safetensors").string();
  const outcome whole =
      run_command(base + small + " --mixer local --steps 8 --given 5 --out " + (directory / "whole").string());
  INFO(whole.output);
  REQUIRE(whole.status == 0);
  CHECK(whole.output.find("bits/pixel") != std::string::npos);
  REQUIRE(run_command(base + small + " --mixer local --steps 8 --stop-at 3" + save).status == 0);
  REQUIRE(run_command(base + load + " --threads 1 --given 5 --out " + (directory / "rest").string()).status == 0);
  const nlohmann::json first = results("whole"), second = results("rest");
  for (const char* same : {"train_bits", "test_bits", "continued", "parameters", "bias_rank"})
    CHECK(first["results"][0][same] == second["results"][0][same]);

  // Of each class one image, as it was where it was given, and bytes of the whole range behind.
  CHECK(first["originals"].size() == static_cast<std::size_t>(image_classes));
  const auto continued = first["results"][0]["continued"].get<std::vector<std::vector<int>>>();
  const auto originals = first["originals"].get<std::vector<std::vector<int>>>();
  REQUIRE(continued.size() == originals.size());
  for (std::size_t i = 0; i < continued.size(); ++i) {
    REQUIRE(continued[i].size() == static_cast<std::size_t>(length));
    CHECK(std::equal(originals[i].begin(), originals[i].begin() + 5 * image_columns, continued[i].begin()));
    CHECK(continued[i] != originals[i]);
  }
  // A model that knows nothing needs 8 bits a pixel, and these images have 210 values, nearly all of them likely.
  CHECK(first["results"][0]["test_bits"] > 0.0);
  CHECK(first["results"][0]["test_bits"] < 8.5);

  const std::string data = " --data " + directory.path().string();
  check_refuses(data + " --given 12", "the images have 12 rows");
  check_refuses(data + " --mixer conv2d", "--mixer conv2d: expected local, conv, attention, full, simple or all");
  check_refuses(data + load + " --images 30", "another set of images");
  check_refuses(data + load + " --bias-rank 3", "--bias-rank");
  check_refuses(data + load + " --mixer conv", "its mixer is local, not conv");
  check_refuses(" --data " + (directory / "none").string(), "not a directory");
  // A classifier's file is none of these.
  REQUIRE(run_command(std::string(VISION_PROGRAM) + " classify" + data +
                      " --mixer simple --dim 16 --layers 1 --steps 1 --batch 2 --save " +
                      (directory / "c.safetensors").string())
              .status == 0);
  check_refuses(data + " --load " + (directory / "c.safetensors").string(), "not a checkpoint of this program");
}
