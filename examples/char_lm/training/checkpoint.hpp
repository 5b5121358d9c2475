// SPDX-License-Identifier: Apache-2.0
//
// A training run in a file: weights, moments, history, and the settings that make it continue.
#pragma once

#include "char_lm/training/settings.hpp"
#include "common/training/training_state.hpp"

namespace examples::char_lm {

struct checkpoint {
  training_settings settings;
  std::uint64_t text_fingerprint = 0;
  std::int64_t steps_done = 0;
  safetensors::file tensors;

  /// Throws user_error if the file is damaged or is not a checkpoint of this program.
  static checkpoint read(const std::filesystem::path& path);
  /// Copies everything, or throws user_error before anything is changed.
  void restore(optimizer& target, history& past) const;
};

/// Throws user_error; the file that was there is then as before.
void save_checkpoint(const std::filesystem::path& path, const training_settings& settings,
                     std::uint64_t text_fingerprint, optimizer& state, const history& past);

}  // namespace examples::char_lm
