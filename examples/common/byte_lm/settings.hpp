// SPDX-License-Identifier: Apache-2.0
//
// Everything that decides what a training run computes.
#pragma once

#include "common/byte_lm/model.hpp"
#include "common/training/run_settings.hpp"

namespace examples::byte_lm {

/// A checkpoint holds these: the same settings and the same data give the same losses, bit for bit.
struct training_settings : run_settings {
  model_shape shape;
};

/// Throws user_error if the sizes do not fit together.
void check(const training_settings& settings);

}  // namespace examples::byte_lm
