// SPDX-License-Identifier: Apache-2.0
//
// One model on one source of bytes: steps, evaluation, checkpoints, and what the trained model writes.
#pragma once

#include "common/byte_lm/checkpoint.hpp"
#include "common/byte_lm/source.hpp"
#include "common/byte_lm/writer.hpp"

#include <optional>

namespace examples::byte_lm {

class training {
 public:
  /// `cut`: each of these ranks makes such an object and calls the same functions, and has a part of every sequence;
  /// null: all is here. Refers to it, as to the data.
  training(const training_settings& settings, const source& data, int threads, const ranks* cut = nullptr);
  /// Goes on where the checkpoint ends. Throws user_error if it does not fit or is of other data.
  training(const checkpoint& from, const source& data, int threads, const ranks* cut = nullptr);

  /// One step; returns the training loss in bits a byte.
  double step();
  bool finished() const { return steps_done() >= settings_.steps; }
  std::int64_t steps_done() const { return optimizer_.steps_done(); }

  /// Bits a byte on the held-out part.
  double held_out_bits();
  /// Of several ranks the first writes the file, which is that of a run of one.
  void save(const std::filesystem::path& path);
  /// Goes on from the prompt with the bytes that the run's seed draws. Refers to whole_network(). One rank may do so
  /// alone.
  writer<float> start_writing(const std::string& prompt, double temperature, bool restart);

  const training_settings& settings() const { return settings_; }
  const history& past() const { return history_; }
  model<float>& network() { return model_; }
  /// One that has all positions, to write with: this one, or where it is cut a copy for one sequence with its weights,
  /// made at the first call.
  model<float>& whole_network();
  /// What begins alike on all ranks: data and weights.
  std::uint64_t fingerprint() const;
  /// Bytes that came from other ranks in the last step: in the operators' calls, and of losses and gradients.
  struct traffic {
    index_t calls = 0;
    index_t sums = 0;
  };
  traffic received() const { return received_; }
  /// Milliseconds of the median step since this object was made: of the whole, and of the mixers' operators.
  double step_milliseconds() const;
  double mixer_milliseconds() const;

 private:
  training_settings settings_;
  const source& data_;
  const ranks* cut_;
  model<float> model_;
  std::unique_ptr<model<float>> whole_;
  optimizer optimizer_;
  history history_;
  std::vector<double> step_seconds_;
  std::vector<double> mixer_seconds_;
  traffic received_;
};

/// What is known of a run when its steps are done; a program adds what it does with the model.
struct finished_run {
  training_settings settings;
  index_t parameters = 0;
  double held_out_bits = 0;  // a byte
  double mixer_milliseconds = 0;
  double step_milliseconds = 0;
  std::size_t peak_bytes = 0;  // before the evaluation
  history past;
  decoding_seconds decoding;  // of a byte behind a full context, where the program measures it
  index_t state_bytes = 0;    // what the streams of what is written remember
};
finished_run finish(training& run);

}  // namespace examples::byte_lm
