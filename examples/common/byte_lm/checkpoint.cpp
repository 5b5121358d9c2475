// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/checkpoint.hpp"

namespace examples::byte_lm {

namespace {

training_settings settings_from(const metadata_reader& f) {
  training_settings s;
  s.shape.mixer = read_mixer(f, all_mixers);
  s.shape.context = f.integer<index_t>("context");
  s.shape.channels = f.integer<index_t>("dim");
  s.shape.layers = f.integer<index_t>("layers");
  s.shape.heads = f.integer<index_t>("heads");
  s.shape.window = f.integer<index_t>("window");
  s.shape.tied_keys = f.integer<int>("tied_keys") != 0;
  s.shape.bias_rank = f.integer<index_t>("bias_rank", 0);
  read_settings(f, s);
  check(s);
  return s;
}

}  // namespace

checkpoint read_checkpoint(const std::filesystem::path& path, const file_format& format) {
  return read_run<training_settings>(path, format, settings_from);
}

void save_checkpoint(const std::filesystem::path& path, const training_settings& s, const source& data,
                     optimizer& state, const history& past) {
  const file_format format = data.format();
  safetensors::metadata header = {
      {"format", format.name},
      {"mixer", std::string(name_of(s.shape.mixer))},
      {"context", std::to_string(s.shape.context)},
      {"dim", std::to_string(s.shape.channels)},
      {"layers", std::to_string(s.shape.layers)},
      {"heads", std::to_string(s.shape.heads)},
      {"window", std::to_string(s.shape.window)},
      {"tied_keys", s.shape.tied_keys ? "1" : "0"},
      {"bias_rank", std::to_string(s.shape.bias_rank)},
      {"step", std::to_string(state.steps_done())},
      {format.fingerprint, std::to_string(data.fingerprint())},
  };
  write_settings(header, s);
  save(path, header, state, past);
}

}  // namespace examples::byte_lm
