// SPDX-License-Identifier: Apache-2.0
//
// What all the programs' results say and how they are written.
#pragma once

#include "common/training/run_settings.hpp"
#include "common/training/training_state.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace examples {

/// How a model was trained, and the losses on the way.
void add_training(nlohmann::json& to, const run_settings& settings, const history& past);

/// Adds what the program was built with, and replaces the file as a whole. Throws user_error.
void write_results(const std::filesystem::path& file, nlohmann::json results);

/// The text as a terminal can show it: anything but printable ASCII and line ends becomes '?'.
std::string printable(const std::string& bytes);

}  // namespace examples
