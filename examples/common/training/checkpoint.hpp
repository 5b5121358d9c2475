// SPDX-License-Identifier: Apache-2.0
//
// A training run in a file: weights, moments, history, and the settings that make it continue.
#pragma once

#include "common/mixers/mixer.hpp"
#include "common/training/metadata.hpp"
#include "common/training/training_state.hpp"

namespace examples {

/// Settings are a program's own: run_settings with the shape of a model.
template <class Settings>
struct run_file {
  Settings settings;
  std::uint64_t data_fingerprint = 0;
  std::int64_t steps_done = 0;
  safetensors::file tensors;
};

/// What tells the files of one program from others.
struct file_format {
  const char* name;
  const char* fingerprint;  // the key of that of the data
};

/// settings_from(metadata_reader) makes the settings of what the file says. Throws user_error if the file is damaged or
/// has another format.
template <class Settings, class SettingsFrom>
run_file<Settings> read_run(const std::filesystem::path& path, const file_format& format,
                            const SettingsFrom& settings_from) {
  run_file<Settings> result;
  result.tensors = safetensors::file::read(path);
  try {
    const safetensors::metadata& header = result.tensors.header();
    const metadata_reader f(header);
    const auto found = header.find("format");
    if (found == header.end() || found->second != format.name) throw user_error("not a checkpoint of this program");
    if (!result.tensors.has_checksum()) throw user_error("the checksum is missing");
    result.settings = settings_from(f);
    result.data_fingerprint = f.integer<std::uint64_t>(format.fingerprint);
    result.steps_done = f.integer<std::int64_t>("step");
    if (result.steps_done < 0 || result.steps_done > result.settings.steps)
      throw user_error("metadata \"step\" is " + std::to_string(result.steps_done) + " of " +
                       std::to_string(result.settings.steps));
  } catch (const user_error& e) {
    throw user_error("checkpoint " + path.string() + ": " + e.what());
  }
  return result;
}

/// The mixer that a file names, among those of a program. Throws user_error.
inline mixer_kind read_mixer(const metadata_reader& from, std::span<const mixer_kind> among) {
  const std::string& name = from.text("mixer");
  const auto mixer = mixer_named(name, among);
  if (!mixer) throw user_error("metadata \"mixer\" is \"" + name + "\", not one that is known");
  return *mixer;
}

/// Throws user_error where the file's mixer is another one.
template <class Settings>
void require_mixer(const run_file<Settings>& from, const std::filesystem::path& path, mixer_kind mixer) {
  if (from.settings.shape.mixer == mixer) return;
  throw user_error("checkpoint " + path.string() + ": its mixer is " + std::string(name_of(from.settings.shape.mixer)) +
                   ", not " + std::string(name_of(mixer)));
}

}  // namespace examples
