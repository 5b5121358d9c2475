// SPDX-License-Identifier: Apache-2.0
//
// char_lm: trains the same language model with several mixers and compares them.

#include "char_lm/data/text.hpp"
#include "char_lm/report/report.hpp"
#include "common/report/program.hpp"
#include "common/report/results_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>

namespace {

using namespace examples;
using namespace examples::char_lm;

/// Writes with the model, and says so if it takes long.
void write(training& run, const command_line& line, result& r) {
  using clock = std::chrono::steady_clock;
  if (line.generate == 0) return;
  r.decoding = measure_decoding(run.network());
  const auto start = clock::now();
  writer<float> text = run.start_writing(line.prompt, line.temperature, line.restart);
  std::optional<progress> display;
  for (index_t done = 1; done <= line.generate && !interrupted(); ++done) {
    text.next();
    const double seconds = std::chrono::duration<double>(clock::now() - start).count();
    const double rate = static_cast<double>(done) / seconds;
    r.characters_per_second = rate;
    if (!display && seconds > 1)
      display.emplace(std::string(name_of(r.settings.shape.mixer)) + " writes", progress_words{"character", "", ""},
                      line.generate, done);
    if (display) display->step(done, rate, static_cast<double>(line.generate - done) / rate);
  }
  if (display) display->finish();
  r.state_bytes = text.state_bytes();
  r.written = text.text();
  run.network().take_mixer_seconds();
}

result result_of(training& run, const command_line& line) {
  result r;
  r.settings = run.settings();
  r.parameters = run.network().parameter_count();
  r.peak_bytes = memory_meter::peak();
  r.mixer_milliseconds = run.mixer_milliseconds();
  r.step_milliseconds = run.step_milliseconds();
  r.past = run.past();
  r.held_out_bits = run.held_out_bits();
  write(run, line, r);
  for (index_t layer = 0; layer < r.settings.shape.layers; ++layer)
    if (const parameter<float>* bias = run.network().position_bias(layer))
      r.biases.push_back({bias->shape, {bias->value.begin(), bias->value.end()}});
  return r;
}

std::unique_ptr<training> start(const command_line& line, mixer_kind mixer, const text& data) {
  if (line.load.empty()) return std::make_unique<training>(settings_for(line, mixer), data, line.threads);
  const std::filesystem::path file = file_for(line, line.load, mixer);
  const checkpoint from = read_checkpoint(file, text::checkpoints);
  require_mixer(from, file, mixer);
  return std::make_unique<training>(from, data, line.threads);
}

int run(const command_line& line) {
  const text data = text::read(line.text);
  const double order1 = entropy(data.bytes(), 1);
  std::printf("%s: %zu bytes, %lld distinct, entropy %.3f bits (%.3f with the byte before known); %d threads\n",
              line.text.c_str(), data.bytes().size(), static_cast<long long>(data.distinct()), entropy(data.bytes(), 0),
              order1, line.threads);
  if (!line.out.empty()) std::filesystem::create_directories(line.out);
  note_interrupts();
  std::vector<result> results;
  for (const mixer_kind mixer : line.mixers) {
    memory_meter::restart();
    const std::unique_ptr<training> one = start(line, mixer, data);
    const std::filesystem::path save = file_for(line, line.save, mixer);
    if (!line.eval_only)
      train(*one, std::string(name_of(mixer)), {"step", "char", "tokens"},
            static_cast<double>(one->settings().batch * one->settings().shape.context),
            {.stop_at = line.stop_at, .save_every = line.save_every, .save = save});
    if (interrupted()) {
      std::printf("interrupted at step %lld%s%s\n", static_cast<long long>(one->steps_done()),
                  save.empty() ? "" : "; go on with --load ", save.c_str());
      return exit_interrupted;
    }
    results.push_back(result_of(*one, line));
    if (interrupted()) {
      std::printf("interrupted after %zu of %lld characters:\n%s%s\n", results.back().written.size(),
                  static_cast<long long>(line.generate), line.prompt.c_str(),
                  printable(results.back().written).c_str());
      return exit_interrupted;
    }
    // After each mixer: what is finished is not lost with what is not.
    if (!line.out.empty())
      write_json(line.out / "results.json", results, line.text.filename().string(), line.threads, order1);
  }
  std::printf("\n");
  print_table(stdout, results);
  const auto best = std::min_element(results.begin(), results.end(), [](const result& a, const result& b) {
    return a.held_out_bits < b.held_out_bits;
  });
  if (line.generate > 0)
    std::printf("\n%s writes:\n%s%s\n", std::string(name_of(best->settings.shape.mixer)).c_str(), line.prompt.c_str(),
                printable(best->written).c_str());
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("char_lm", [&] {
    parsed arguments = parse(argc, argv);
    command_line& line = arguments.line;
    if (!arguments.finished && line.mixers.empty())
      line.mixers = {read_checkpoint(line.load, text::checkpoints).settings.shape.mixer};
    return arguments.finished ? EXIT_SUCCESS : run(line);
  });
}
