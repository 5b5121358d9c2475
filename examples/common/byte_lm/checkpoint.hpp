// SPDX-License-Identifier: Apache-2.0
//
// A training run of this program in a file.
#pragma once

#include "common/byte_lm/settings.hpp"
#include "common/byte_lm/source.hpp"
#include "common/training/checkpoint.hpp"

namespace examples::byte_lm {

using checkpoint = run_file<training_settings>;

/// Throws user_error if the file is damaged or is not a checkpoint of this program.
checkpoint read_checkpoint(const std::filesystem::path& path, const file_format& format);

/// Throws user_error; the file that was there is then as before.
void save_checkpoint(const std::filesystem::path& path, const training_settings& settings, const source& data,
                     optimizer& state, const history& past);

}  // namespace examples::byte_lm
