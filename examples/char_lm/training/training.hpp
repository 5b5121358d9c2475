// SPDX-License-Identifier: Apache-2.0
//
// One model on one text: steps, evaluation, checkpoints, and what the trained model writes.
#pragma once

#include "char_lm/data/text.hpp"
#include "char_lm/training/checkpoint.hpp"
#include "char_lm/training/writer.hpp"

#include <optional>

namespace examples::char_lm {

class training {
 public:
  training(const training_settings& settings, const text& data, int threads);
  /// Goes on where the checkpoint ends. Throws user_error if it does not fit or is of another text.
  training(const checkpoint& from, const text& data, int threads);

  /// One step; returns the training loss in bits a character.
  double step();
  bool finished() const { return steps_done() >= settings_.steps; }
  std::int64_t steps_done() const { return optimizer_.steps_done(); }

  /// Bits a character on the held-out part.
  double held_out_bits();
  void save(const std::filesystem::path& path);
  /// Goes on from the prompt with the bytes that the run's seed draws. Refers to the model.
  writer<float> start_writing(const std::string& prompt, double temperature, bool restart);

  const training_settings& settings() const { return settings_; }
  const history& past() const { return history_; }
  model<float>& network() { return model_; }
  /// Milliseconds of the median step since this object was made: of the whole, and of the mixers' operators.
  double step_milliseconds() const;
  double mixer_milliseconds() const;

 private:
  training_settings settings_;
  const text& text_;
  model<float> model_;
  optimizer optimizer_;
  history history_;
  std::vector<double> step_seconds_;
  std::vector<double> mixer_seconds_;
};

}  // namespace examples::char_lm
