// SPDX-License-Identifier: Apache-2.0

#include "vision/training/checkpoint.hpp"

#include "common/support/user_error.hpp"
#include "common/training/metadata.hpp"

namespace examples::vision {

namespace {

constexpr const char* format_name = "aft vision classifier 1";

training_settings settings_from(const metadata_reader& f) {
  training_settings s;
  const auto mixer = mixer_named(f.text("mixer"), image_mixers);
  if (!mixer) throw user_error("metadata \"mixer\" is \"" + f.text("mixer") + "\", not one that is known");
  s.shape.mixer = *mixer;
  s.shape.rows = f.integer<index_t>("rows");
  s.shape.columns = f.integer<index_t>("columns");
  s.shape.patch = f.integer<index_t>("patch");
  s.shape.channels = f.integer<index_t>("dim");
  s.shape.layers = f.integer<index_t>("layers");
  s.shape.heads = f.integer<index_t>("heads");
  s.shape.window = f.integer<index_t>("window");
  s.shape.classes = f.integer<index_t>("classes");
  s.batch = f.integer<index_t>("batch");
  s.steps = f.integer<std::int64_t>("steps");
  s.learning_rate = f.real("lr");
  s.bias_scale = f.real("bias_lr_scale");
  s.seed = f.integer<std::uint64_t>("seed");
  check(s);
  return s;
}

}  // namespace

checkpoint checkpoint::read(const std::filesystem::path& path) {
  checkpoint result;
  result.tensors = safetensors::file::read(path);
  try {
    const metadata_reader f(result.tensors.header());
    const auto format = result.tensors.header().find("format");
    if (format == result.tensors.header().end() || format->second != format_name)
      throw user_error("not a checkpoint of this program");
    if (!result.tensors.has_checksum()) throw user_error("the checksum is missing");
    result.settings = settings_from(f);
    result.data_fingerprint = f.integer<std::uint64_t>("data_fnv1a");
    result.steps_done = f.integer<std::int64_t>("step");
    if (result.steps_done < 0 || result.steps_done > result.settings.steps)
      throw user_error("metadata \"step\" is " + std::to_string(result.steps_done) + " of " +
                       std::to_string(result.settings.steps));
  } catch (const user_error& e) {
    throw user_error("checkpoint " + path.string() + ": " + e.what());
  }
  return result;
}

void save_checkpoint(const std::filesystem::path& path, const training_settings& s, std::uint64_t data_fingerprint,
                     optimizer& state, const history& past) {
  const auto text = [](const auto& x) { return std::to_string(x); };
  const safetensors::metadata header = {
      {"format", format_name},
      {"mixer", std::string(name_of(s.shape.mixer))},
      {"rows", text(s.shape.rows)},
      {"columns", text(s.shape.columns)},
      {"patch", text(s.shape.patch)},
      {"dim", text(s.shape.channels)},
      {"layers", text(s.shape.layers)},
      {"heads", text(s.shape.heads)},
      {"window", text(s.shape.window)},
      {"classes", text(s.shape.classes)},
      {"batch", text(s.batch)},
      {"steps", text(s.steps)},
      {"lr", exact(s.learning_rate)},
      {"bias_lr_scale", exact(s.bias_scale)},
      {"seed", text(s.seed)},
      {"step", text(state.steps_done())},
      {"data_fnv1a", text(data_fingerprint)},
  };
  save(path, header, state, past);
}

}  // namespace examples::vision
