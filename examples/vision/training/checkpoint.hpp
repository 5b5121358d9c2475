// SPDX-License-Identifier: Apache-2.0
//
// A training run in a file: weights, moments, history, and the settings that make it continue.
#pragma once

#include "common/training/training_state.hpp"
#include "vision/training/settings.hpp"

namespace examples::vision {

struct checkpoint {
  training_settings settings;
  std::uint64_t data_fingerprint = 0;
  std::int64_t steps_done = 0;
  safetensors::file tensors;

  /// Throws user_error if the file is damaged or is not a checkpoint of this program.
  static checkpoint read(const std::filesystem::path& path);
};

/// Throws user_error; the file that was there is then as before.
void save_checkpoint(const std::filesystem::path& path, const training_settings& settings,
                     std::uint64_t data_fingerprint, optimizer& state, const history& past);

}  // namespace examples::vision
