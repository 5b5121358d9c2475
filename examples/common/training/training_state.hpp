// SPDX-License-Identifier: Apache-2.0
//
// What a training run has changed so far, and how it goes into a file and comes back.
#pragma once

#include "common/training/optimizer.hpp"
#include "common/training/safetensors.hpp"

#include <filesystem>

namespace examples {

/// What the plots show, one value a step.
struct history {
  std::vector<double> bits;     // training loss, bits a prediction
  std::vector<double> seconds;  // since the start, without the time between interruption and resumption
};

/// "(2, 3)".
std::string shape_text(const std::vector<index_t>& shape);

/// Copies weights, moments and history, or throws user_error before anything is changed.
void restore(const safetensors::file& file, std::int64_t steps_done, optimizer& state, history& past);

/// Throws user_error; the file that was there is then as before.
void save(const std::filesystem::path& path, const safetensors::metadata& header, optimizer& state,
          const history& past);

}  // namespace examples
