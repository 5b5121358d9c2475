// SPDX-License-Identifier: Apache-2.0
//
// vision: trains the same image model with several mixers and compares them.

#include "common/report/program.hpp"
#include "vision/pixels/pixels.hpp"
#include "vision/report/report.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace {

using namespace examples;
using namespace examples::vision;

// On the picture of their keys.
constexpr index_t images_shown = 3;

result result_of(training& run, const image_set& data, const std::vector<index_t>& grids) {
  result r;
  r.settings = run.settings();
  r.parameters = run.network().parameter_count();
  r.peak_bytes = memory_meter::peak();
  r.mixer_milliseconds = run.mixer_milliseconds();
  r.step_milliseconds = run.step_milliseconds();
  r.past = run.past();
  r.test_images = data.test().count;
  r.tested = run.test();
  if (r.settings.shape.mixer == mixer_kind::conv2d)
    for (const index_t side : grids) r.others.push_back({side, run.test_on_grid(side, side)});
  for (index_t layer = 0; layer < r.settings.shape.layers; ++layer) {
    mixer<float>& mix = run.network().mixer_of(layer);
    if (const parameter<float>* bias = mix.position_bias()) {
      const float* values = mix.operator_bias();
      r.biases.push_back({bias->shape, {values, values + bias->count()}});
    }
  }
  r.looks = run.look(images_shown);
  return r;
}

std::unique_ptr<training> start(const command_line& line, mixer_kind mixer, const image_set& data) {
  if (line.load.empty()) {
    auto fresh = std::make_unique<training>(settings_for(line, mixer, data), data, line.threads);
    if (!line.begin_with.empty()) {
      const index_t taken = fresh->begin_with(line.begin_with, line.names);
      std::printf("%s: %lld of %lld tensors begin as in %s\n", std::string(name_of(mixer)).c_str(),
                  static_cast<long long>(taken), static_cast<long long>(fresh->network().parameters().size()),
                  line.begin_with.c_str());
    }
    return fresh;
  }
  const std::filesystem::path file = file_for(line, line.load, mixer);
  const checkpoint from = read_checkpoint(file);
  require_mixer(from, file, mixer);
  return std::make_unique<training>(from, data, line.threads);
}

int classify(const command_line& line) {
  const image_set data = image_set::read(line.data, line.images, line.test_images);
  std::printf("%s: %lld + %lld images of %lld x %lld pixels, %lld classes; %d threads\n", line.data.c_str(),
              static_cast<long long>(data.training().count), static_cast<long long>(data.test().count),
              static_cast<long long>(data.training().rows), static_cast<long long>(data.training().columns),
              static_cast<long long>(data.classes()), line.threads);
  if (!line.out.empty()) std::filesystem::create_directories(line.out);
  note_interrupts();
  std::vector<result> results;
  for (const mixer_kind mixer : line.mixers) {
    memory_meter::restart();
    const std::unique_ptr<training> one = start(line, mixer, data);
    const std::filesystem::path save = file_for(line, line.save, mixer);
    if (!line.eval_only)
      train(*one, std::string(name_of(mixer)), {"step", "image", "images"}, static_cast<double>(one->settings().batch),
            {.stop_at = line.stop_at, .save_every = line.save_every, .save = save});
    if (interrupted()) {
      std::printf("interrupted at step %lld%s%s\n", static_cast<long long>(one->steps_done()),
                  save.empty() ? "" : "; go on with --load ", save.c_str());
      return exit_interrupted;
    }
    results.push_back(result_of(*one, data, line.test_grids));
    results.back().begun_with = line.begin_with.filename().string();
    // After each mixer: what is finished is not lost with what is not.
    if (!line.out.empty())
      write_json(line.out / "results.json", results, line.data.filename().string(), data, line.threads);
  }
  std::printf("\n");
  print_table(stdout, results);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("vision", [&] {
    CLI::App app{"Trains image models that differ in one part, the mixer, and compares them."};
    CLI::App* classified = app.add_subcommand("classify", "Names what is on an image");
    command_line line;
    add_classify_options(*classified, line);
    CLI::App* continued = app.add_subcommand("pixels", "Says the next pixel, and continues images");
    pixels_line pixels;
    add_pixels_options(*continued, pixels);
    app.require_subcommand(1);
    if (!parse_arguments(app, argc, argv)) return EXIT_SUCCESS;
    if (continued->parsed()) {
      complete_pixels(*continued, pixels);
      return run_pixels(pixels);
    }
    complete_classify(*classified, line);
    if (line.mixers.empty()) line.mixers = {read_checkpoint(line.load).settings.shape.mixer};
    return classify(line);
  });
}
