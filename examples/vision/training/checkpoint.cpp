// SPDX-License-Identifier: Apache-2.0

#include "vision/training/checkpoint.hpp"

namespace examples::vision {

namespace {

constexpr file_format format{"aft vision classifier 3", "data_fnv1a"};

training_settings settings_from(const metadata_reader& f) {
  training_settings s;
  s.shape.mixer = read_mixer(f, image_mixers);
  s.shape.rows = f.integer<index_t>("rows");
  s.shape.columns = f.integer<index_t>("columns");
  s.shape.patch = f.integer<index_t>("patch");
  s.shape.channels = f.integer<index_t>("dim");
  s.shape.layers = f.integer<index_t>("layers");
  s.shape.heads = f.integer<index_t>("heads");
  s.shape.window = f.integer<index_t>("window");
  s.shape.classes = f.integer<index_t>("classes");
  s.shape.filter.naive = f.integer<int>("naive_filter") != 0;
  s.shape.filter.gated = f.integer<int>("gated") != 0;
  s.shape.filter.connected = f.integer<int>("connected") != 0;
  s.shape.filter.one_tap = f.integer<int>("one_tap") != 0;
  s.shape.filter.entropy = f.real("filter_entropy");
  s.shape.filter.gain = f.real("filter_gain", 0);
  s.shape.bias_rank = f.integer<index_t>("bias_rank", 0);
  s.matrix_rate = f.real("matrix_lr");
  read_settings(f, s);
  check(s);
  return s;
}

}  // namespace

checkpoint read_checkpoint(const std::filesystem::path& path) {
  return read_run<training_settings>(path, format, settings_from);
}

void save_checkpoint(const std::filesystem::path& path, const training_settings& s, std::uint64_t data_fingerprint,
                     optimizer& state, const history& past) {
  const auto text = [](const auto& x) { return std::to_string(x); };
  safetensors::metadata header = {
      {"format", format.name},
      {"mixer", std::string(name_of(s.shape.mixer))},
      {"rows", text(s.shape.rows)},
      {"columns", text(s.shape.columns)},
      {"patch", text(s.shape.patch)},
      {"dim", text(s.shape.channels)},
      {"layers", text(s.shape.layers)},
      {"heads", text(s.shape.heads)},
      {"window", text(s.shape.window)},
      {"bias_rank", text(s.shape.bias_rank)},
      {"classes", text(s.shape.classes)},
      {"naive_filter", text(int{s.shape.filter.naive})},
      {"gated", text(int{s.shape.filter.gated})},
      {"connected", text(int{s.shape.filter.connected})},
      {"one_tap", text(int{s.shape.filter.one_tap})},
      {"filter_entropy", exact(s.shape.filter.entropy)},
      {"filter_gain", exact(s.shape.filter.gain)},
      {"matrix_lr", exact(s.matrix_rate)},
      {"step", text(state.steps_done())},
      {format.fingerprint, text(data_fingerprint)},
  };
  write_settings(header, s);
  save(path, header, state, past);
}

}  // namespace examples::vision
