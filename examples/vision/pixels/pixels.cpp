// SPDX-License-Identifier: Apache-2.0

#include "vision/pixels/pixels.hpp"

#include "common/report/program.hpp"
#include "vision/pixels/report.hpp"

#include <chrono>
#include <cstdlib>

namespace examples::vision {

namespace {

std::unique_ptr<byte_lm::training> start(const pixels_line& line, mixer_kind mixer, const pixel_rows& data) {
  if (line.load.empty())
    return std::make_unique<byte_lm::training>(settings_for(line, mixer, data), data, line.threads);
  const std::filesystem::path file = file_for(line, line.load, mixer);
  const byte_lm::checkpoint from = byte_lm::read_checkpoint(file, pixel_rows::checkpoints);
  require_mixer(from, file, mixer);
  return std::make_unique<byte_lm::training>(from, data, line.threads);
}

/// Draws what is missing of an image, pixel by pixel.
std::vector<std::uint8_t> continue_image(byte_lm::training& run, const std::vector<std::uint8_t>& beginning,
                                         index_t length, double temperature, pixels_result& r) {
  byte_lm::writer<float> pixels =
      run.start_writing({beginning.begin(), beginning.end()}, temperature, /*restart=*/false);
  std::vector<std::uint8_t> image(beginning.begin() + 1, beginning.end());
  while (static_cast<index_t>(image.size()) < length && !interrupted()) image.push_back(pixels.next());
  r.state_bytes = pixels.state_bytes();
  return image;
}

pixels_result result_of(byte_lm::training& run, const pixels_line& line, const pixel_rows& data, index_t first) {
  using clock = std::chrono::steady_clock;
  pixels_result r{byte_lm::finish(run), {}, {}};
  r.decoding = byte_lm::measure_decoding(run.network());
  const auto begin = clock::now();
  for (const index_t image : data.one_of_each())
    r.continued.push_back(continue_image(run, data.beginning(image, first), data.length(), line.temperature, r));
  const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
  r.pixels_per_second =
      static_cast<double>((data.length() - first) * static_cast<index_t>(r.continued.size())) / seconds;
  run.network().take_mixer_seconds();
  return r;
}

}  // namespace

int run_pixels(pixels_line line) {
  if (line.mixers.empty())
    line.mixers = {byte_lm::read_checkpoint(line.load, pixel_rows::checkpoints).settings.shape.mixer};
  const image_set images = image_set::read(line.data, line.images, line.test_images);
  const pixel_rows data(images);
  const index_t rows = images.test().rows;
  pixels_setting setting{line.data.filename().string(), line.threads, line.given > 0 ? line.given : rows / 2, {}};
  require(setting.given < rows,
          "--given " + std::to_string(setting.given) + ": the images have " + std::to_string(rows) + " rows");
  for (const index_t image : data.one_of_each()) setting.originals.push_back(data.whole(image));
  std::printf("%s: %lld + %lld images of %lld x %lld pixels; %d threads\n", line.data.c_str(),
              static_cast<long long>(images.training().count), static_cast<long long>(images.test().count),
              static_cast<long long>(rows), static_cast<long long>(images.test().columns), line.threads);
  if (!line.out.empty()) std::filesystem::create_directories(line.out);
  note_interrupts();
  std::vector<pixels_result> results;
  for (const mixer_kind mixer : line.mixers) {
    memory_meter::restart();
    const std::unique_ptr<byte_lm::training> one = start(line, mixer, data);
    const std::filesystem::path save = file_for(line, line.save, mixer);
    if (!line.eval_only)
      train(*one, std::string(name_of(mixer)), {"step", "pixel", "pixels"},
            static_cast<double>(one->settings().batch * data.length()),
            {.stop_at = line.stop_at, .save_every = line.save_every, .save = save});
    if (!interrupted()) results.push_back(result_of(*one, line, data, setting.given * images.test().columns));
    if (interrupted()) {
      std::printf("interrupted at step %lld%s%s\n", static_cast<long long>(one->steps_done()),
                  save.empty() ? "" : "; go on with --load ", save.c_str());
      return exit_interrupted;
    }
    // After each mixer: what is finished is not lost with what is not.
    if (!line.out.empty()) write_json(line.out / "results.json", results, setting, images);
  }
  std::printf("\n");
  print_table(stdout, results);
  return EXIT_SUCCESS;
}

}  // namespace examples::vision
