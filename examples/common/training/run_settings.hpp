// SPDX-License-Identifier: Apache-2.0
//
// What decides how the model of any program is trained, beside the model's own shape.
#pragma once

#include "common/mixers/mixer.hpp"
#include "common/training/metadata.hpp"
#include "common/training/optimizer.hpp"

#include <string>

namespace examples {

/// The same settings, shape and data give the same losses, bit for bit.
struct run_settings {
  index_t batch = 16;
  std::int64_t steps = 500;
  double learning_rate = 3e-3;
  double bias_scale = 1;  // the position bias's learning rate over that of the rest
  std::uint64_t seed = 1;
};

optimizer_settings optimizer_settings_of(const run_settings& settings);

/// As a file of weights keeps them. Reading throws user_error.
void read_settings(const metadata_reader& from, run_settings& settings);
void write_settings(safetensors::metadata& to, const run_settings& settings);

/// Throws user_error with this message.
void require(bool holds, const std::string& message);

/// Throws user_error if a setting is out of range, the second and third for what all the models have.
void check_run(const run_settings& settings);
void check_blocks(index_t channels, index_t heads, index_t layers);
void check_bias_rank(mixer_kind mixer, index_t rank);
/// What a command line asks for, for the mixers that have factors; 0 for the others.
index_t bias_rank_of(mixer_kind mixer, index_t asked);

}  // namespace examples
