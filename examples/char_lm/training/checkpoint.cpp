// SPDX-License-Identifier: Apache-2.0

#include "char_lm/training/checkpoint.hpp"

#include "common/support/user_error.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace examples::char_lm {

namespace {

constexpr const char* format_name = "aft char_lm 1";

// Hexadecimal floats survive the way to text and back without a changed bit.
std::string exact(double x) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::hex).ptr;
  return {text, end};
}

class fields {
 public:
  explicit fields(const safetensors::metadata& map) : map_(map) {}

  const std::string& text(const std::string& key) const {
    const auto found = map_.find(key);
    if (found == map_.end()) throw user_error("metadata \"" + key + "\" is missing");
    return found->second;
  }
  template <class Integer>
  Integer integer(const std::string& key) const {
    const std::string& s = text(key);
    Integer value{};
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc{} || end != s.data() + s.size())
      throw user_error("metadata \"" + key + "\" is \"" + s + "\", no whole number");
    return value;
  }
  double real(const std::string& key) const {
    const std::string& s = text(key);
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, std::chars_format::hex);
    if (error != std::errc{} || end != s.data() + s.size() || !std::isfinite(value) || value < 0)
      throw user_error("metadata \"" + key + "\" is \"" + s + "\", no number");
    return value;
  }

 private:
  const safetensors::metadata& map_;
};

training_settings settings_from(const fields& f) {
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

std::string shape_text(const std::vector<index_t>& shape) {
  std::string s = "(";
  for (const index_t extent : shape) s += (s.size() > 1 ? ", " : "") + std::to_string(extent);
  return s + ")";
}

/// A tensor of the file with the array that it belongs to.
struct target {
  std::string name;
  const char* type;
  std::vector<index_t> shape;
  void* data;
};

std::vector<target> targets_of(optimizer& state, history& past) {
  std::vector<target> all;
  const parameter_list<float>& parameters = state.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter<float>& p = *parameters[i];
    all.push_back({p.name, "F32", p.shape, p.value.data()});
    all.push_back({"adam.first." + p.name, "F32", p.shape, state.first()[i].data()});
    all.push_back({"adam.second." + p.name, "F32", p.shape, state.second()[i].data()});
  }
  const auto steps = static_cast<index_t>(past.bits.size());
  all.push_back({"history.bits", "F64", {steps}, past.bits.data()});
  all.push_back({"history.seconds", "F64", {steps}, past.seconds.data()});
  return all;
}

}  // namespace

checkpoint checkpoint::read(const std::filesystem::path& path) {
  checkpoint result;
  result.tensors = safetensors::file::read(path);
  try {
    const fields f(result.tensors.header());
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

void checkpoint::restore(optimizer& state, history& past) const {
  history read;
  read.bits.resize(static_cast<std::size_t>(steps_done));
  read.seconds.resize(static_cast<std::size_t>(steps_done));
  const std::vector<target> wanted = targets_of(state, read);
  // All checks come first: an array is never half restored.
  for (const target& t : wanted) {
    const auto found = tensors.tensors().find(t.name);
    if (found == tensors.tensors().end()) throw user_error("checkpoint: tensor \"" + t.name + "\" is missing");
    if (found->second.type != t.type)
      throw user_error("checkpoint: tensor \"" + t.name + "\" has dtype " + found->second.type + ", expected " +
                       t.type);
    if (found->second.shape != t.shape)
      throw user_error("checkpoint: tensor \"" + t.name + "\" has shape " + shape_text(found->second.shape) +
                       ", expected " + shape_text(t.shape));
  }
  if (tensors.tensors().size() != wanted.size())
    for (const auto& entry : tensors.tensors())
      if (std::none_of(wanted.begin(), wanted.end(), [&](const target& t) { return t.name == entry.first; }))
        throw user_error("checkpoint: tensor \"" + entry.first + "\" is unknown");
  for (const target& t : wanted) {
    const safetensors::file::tensor& from = tensors.tensors().at(t.name);
    if (from.bytes > 0) std::memcpy(t.data, tensors.data(from), from.bytes);
  }
  state.set_steps_done(steps_done);
  past = std::move(read);
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
  history copy = past;
  std::vector<safetensors::source> sources;
  for (const target& t : targets_of(state, copy))
    sources.push_back(
        {t.name, std::strcmp(t.type, "F32") == 0 ? safetensors::dtype::f32 : safetensors::dtype::f64, t.shape, t.data});
  safetensors::write(path, header, sources);
}

}  // namespace examples::char_lm
