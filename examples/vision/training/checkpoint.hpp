// SPDX-License-Identifier: Apache-2.0
//
// A training run of this program in a file.
#pragma once

#include "common/training/checkpoint.hpp"
#include "vision/training/settings.hpp"

namespace examples::vision {

using checkpoint = run_file<training_settings>;

/// Throws user_error if the file is damaged or is not a checkpoint of this program.
checkpoint read_checkpoint(const std::filesystem::path& path);

/// Throws user_error; the file that was there is then as before.
void save_checkpoint(const std::filesystem::path& path, const training_settings& settings,
                     std::uint64_t data_fingerprint, optimizer& state, const history& past);

}  // namespace examples::vision
