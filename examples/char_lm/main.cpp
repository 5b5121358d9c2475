// SPDX-License-Identifier: Apache-2.0
//
// char_lm: trains the same language model with several mixers and compares them.

#include "char_lm/data/text.hpp"
#include "char_lm/ranks/started.hpp"
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

/// Writes with the model, and says so if it takes long. One rank does so.
void write(training& run, const command_line& line, result& r) {
  using clock = std::chrono::steady_clock;
  if (line.generate == 0) return;
  model<float>& network = run.whole_network();
  r.decoding = measure_decoding(network);
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
  network.take_mixer_seconds();
}

result result_of(training& run, const command_line& line, const ranks* all) {
  result r{finish(run), {}, {}, {}, {}};
  if (all != nullptr && all->size() > 1) r.received = all->values(run.received());
  together(all, [&] {
    if (is_first(all)) write(run, line, r);
  });
  for (index_t layer = 0; layer < r.settings.shape.layers; ++layer)
    if (const parameter<float>* bias = run.network().position_bias(layer))
      r.biases.push_back({bias->shape, {bias->value.begin(), bias->value.end()}});
  return r;
}

std::unique_ptr<training> start(const command_line& line, mixer_kind mixer, const text& data, const ranks* all) {
  if (line.load.empty()) return std::make_unique<training>(settings_for(line, mixer), data, line.threads, all);
  const std::filesystem::path file = file_for(line, line.load, mixer);
  const checkpoint from = read_checkpoint(file, text::checkpoints);
  require_mixer(from, file, mixer);
  return std::make_unique<training>(from, data, line.threads, all);
}

/// The first of several ranks names them.
std::string words_of(const ranks* all, int threads) {
  const std::string own = std::to_string(threads) + " threads";
  return all == nullptr || all->size() == 1 ? own : std::to_string(all->size()) + " ranks of " + own;
}

int run(const command_line& line, const ranks* all) {
  std::unique_ptr<const text> read;
  together(all, [&] {
    read = std::make_unique<const text>(text::read(line.text));
    if (!line.out.empty() && is_first(all)) std::filesystem::create_directories(line.out);
  });
  const text& data = *read;
  const double order1 = entropy(data.bytes(), 1);
  std::printf("%s: %zu bytes, %lld distinct, entropy %.3f bits (%.3f with the byte before known); %s\n",
              line.text.c_str(), data.bytes().size(), static_cast<long long>(data.distinct()), entropy(data.bytes(), 0),
              order1, words_of(all, line.threads).c_str());
  note_interrupts();
  // A signal reaches ranks at different steps, and all have to stop at the same.
  const auto stop = [&] { return on_any(all, interrupted()); };
  std::vector<result> results;
  for (const mixer_kind mixer : line.mixers) {
    memory_meter::restart();
    std::unique_ptr<training> one;
    together(all, [&] { one = start(line, mixer, data, all); });
    if (all != nullptr) require_alike(all, one->fingerprint(), "text or other weights");
    const std::filesystem::path save = file_for(line, line.save, mixer);
    if (!line.eval_only)
      train(*one, std::string(name_of(mixer)), {"step", "char", "tokens"},
            static_cast<double>(one->settings().batch * one->settings().shape.context),
            {.stop_at = line.stop_at, .save_every = line.save_every, .save = save, .stop = stop});
    if (stop()) {
      std::printf("interrupted at step %lld%s%s\n", static_cast<long long>(one->steps_done()),
                  save.empty() ? "" : "; go on with --load ", save.c_str());
      return exit_interrupted;
    }
    results.push_back(result_of(*one, line, all));
    if (stop()) {
      std::printf("interrupted after %zu of %lld characters:\n%s%s\n", results.back().written.size(),
                  static_cast<long long>(line.generate), line.prompt.c_str(),
                  printable(results.back().written).c_str());
      return exit_interrupted;
    }
    // After each mixer: what is finished is not lost with what is not.
    together(all, [&] {
      if (!line.out.empty() && is_first(all))
        write_json(line.out / "results.json", results, line.text.filename().string(), line.threads, order1);
    });
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
  const started as(&argc, &argv);
  return examples::run_program(
      "char_lm",
      [&] {
        parsed arguments;
        command_line& line = arguments.line;
        together(as.all(), [&] {
          arguments = parse(argc, argv);
          if (!arguments.finished && line.mixers.empty())
            line.mixers = {read_checkpoint(line.load, text::checkpoints).settings.shape.mixer};
          if (as.all() != nullptr) require_cuttable(line, as.all()->size());
        });
        return arguments.finished ? EXIT_SUCCESS : run(line, as.all());
      },
      as.all());
}
