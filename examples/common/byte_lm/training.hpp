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
  training(const training_settings& settings, const source& data, int threads);
  /// Goes on where the checkpoint ends. Throws user_error if it does not fit or is of other data.
  training(const checkpoint& from, const source& data, int threads);

  /// One step; returns the training loss in bits a byte.
  double step();
  bool finished() const { return steps_done() >= settings_.steps; }
  std::int64_t steps_done() const { return optimizer_.steps_done(); }

  /// Bits a byte on the held-out part.
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
  const source& data_;
  model<float> model_;
  optimizer optimizer_;
  history history_;
  std::vector<double> step_seconds_;
  std::vector<double> mixer_seconds_;
};

}  // namespace examples::byte_lm
