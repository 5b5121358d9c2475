// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/mixer.hpp"

#include "common/mixers/aft_mixer.hpp"
#include "common/mixers/attention.hpp"
#include "common/mixers/grid_mixer.hpp"
#include "common/support/user_error.hpp"

#include <algorithm>

namespace examples {

std::string_view name_of(mixer_kind kind) {
  switch (kind) {
    case mixer_kind::local: return "local";
    case mixer_kind::simple: return "simple";
    case mixer_kind::conv: return "conv";
    case mixer_kind::full: return "full";
    case mixer_kind::attention: return "attention";
    case mixer_kind::conv2d: return "conv2d";
  }
  return "";
}

bool can_be_cut(mixer_kind kind) {
  switch (kind) {
    case mixer_kind::local:
    case mixer_kind::simple:
    case mixer_kind::conv:
    case mixer_kind::full: return true;
    case mixer_kind::attention:
    case mixer_kind::conv2d: break;
  }
  return false;
}

std::optional<mixer_kind> mixer_named(std::string_view name, std::span<const mixer_kind> among) {
  for (const mixer_kind kind : among)
    if (name_of(kind) == name) return kind;
  return std::nullopt;
}

std::vector<mixer_kind> mixers_named(const std::vector<std::string>& names, std::span<const mixer_kind> among) {
  std::vector<mixer_kind> result;
  const auto add = [&](mixer_kind kind) {
    if (std::find(result.begin(), result.end(), kind) == result.end()) result.push_back(kind);
  };
  for (const std::string& name : names) {
    if (name == "all") {
      for (const mixer_kind kind : among) add(kind);
      continue;
    }
    const auto kind = mixer_named(name, among);
    if (!kind) {
      std::string known;
      for (const mixer_kind one : among) known += std::string(name_of(one)) + ", ";
      throw user_error("--mixer " + name + ": expected " + known.substr(0, known.size() - 2) + " or all");
    }
    add(*kind);
  }
  return result;
}

std::filesystem::path file_of_mixer(const std::filesystem::path& file, mixer_kind kind) {
  if (file.empty()) return file;
  std::filesystem::path result = file;
  result.replace_filename(file.stem().string() + "-" + std::string(name_of(kind)) + file.extension().string());
  return result;
}

template <class Real>
std::unique_ptr<mixer<Real>> make_mixer(mixer_kind kind, const std::string& name, const mixer_shape& shape) {
  if (shape.cut != nullptr && shape.cut->size() > 1 && !can_be_cut(kind))
    throw user_error(std::string(name_of(kind)) + ": its sequences cannot be cut over ranks");
  if (kind == mixer_kind::conv2d) return make_grid_mixer<Real>(name, shape);
  if (kind == mixer_kind::attention) return std::make_unique<attention<Real>>(shape);
  return make_aft_mixer<Real>(kind, name, shape);
}

template std::unique_ptr<mixer<float>> make_mixer(mixer_kind, const std::string&, const mixer_shape&);
template std::unique_ptr<mixer<double>> make_mixer(mixer_kind, const std::string&, const mixer_shape&);

}  // namespace examples
