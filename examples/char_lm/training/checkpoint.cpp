// SPDX-License-Identifier: Apache-2.0

#include "char_lm/training/checkpoint.hpp"

#include "common/support/user_error.hpp"
#include "common/training/metadata.hpp"

namespace examples::char_lm {

namespace {

constexpr const char* format_name = "aft char_lm 1";

training_settings settings_from(const metadata_reader& f) {
  training_settings s;
  const auto mixer = mixer_named(f.text("mixer"));
  if (!mixer) throw user_error("metadata \"mixer\" is \"" + f.text("mixer") + "\", not one that is known");
  s.shape.mixer = *mixer;
  s.shape.context = f.integer<index_t>("context");
  s.shape.channels = f.integer<index_t>("dim");
  s.shape.layers = f.integer<index_t>("layers");
  s.shape.heads = f.integer<index_t>("heads");
  s.shape.window = f.integer<index_t>("window");
  s.shape.tied_keys = f.integer<int>("tied_keys") != 0;
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
    result.text_fingerprint = f.integer<std::uint64_t>("text_fnv1a");
    result.steps_done = f.integer<std::int64_t>("step");
    if (result.steps_done < 0 || result.steps_done > result.settings.steps)
      throw user_error("metadata \"step\" is " + std::to_string(result.steps_done) + " of " +
                       std::to_string(result.settings.steps));
  } catch (const user_error& e) {
    throw user_error("checkpoint " + path.string() + ": " + e.what());
  }
  return result;
}

void checkpoint::restore(optimizer& target, history& past) const {
  examples::restore(tensors, steps_done, target, past);
}

void save_checkpoint(const std::filesystem::path& path, const training_settings& s, std::uint64_t text_fingerprint,
                     optimizer& state, const history& past) {
  const safetensors::metadata header = {
      {"format", format_name},
      {"mixer", std::string(name_of(s.shape.mixer))},
      {"context", std::to_string(s.shape.context)},
      {"dim", std::to_string(s.shape.channels)},
      {"layers", std::to_string(s.shape.layers)},
      {"heads", std::to_string(s.shape.heads)},
      {"window", std::to_string(s.shape.window)},
      {"tied_keys", s.shape.tied_keys ? "1" : "0"},
      {"batch", std::to_string(s.batch)},
      {"steps", std::to_string(s.steps)},
      {"lr", exact(s.learning_rate)},
      {"bias_lr_scale", exact(s.bias_scale)},
      {"seed", std::to_string(s.seed)},
      {"step", std::to_string(state.steps_done())},
      {"text_fnv1a", std::to_string(text_fingerprint)},
  };
  save(path, header, state, past);
}

}  // namespace examples::char_lm
