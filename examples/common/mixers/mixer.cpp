// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/mixer.hpp"

#include "common/mixers/aft_mixer.hpp"
#include "common/mixers/attention.hpp"

namespace examples {

std::string_view name_of(mixer_kind kind) {
  switch (kind) {
    case mixer_kind::local: return "local";
    case mixer_kind::simple: return "simple";
    case mixer_kind::conv: return "conv";
    case mixer_kind::full: return "full";
    case mixer_kind::attention: return "attention";
  }
  return "";
}

std::optional<mixer_kind> mixer_named(std::string_view name) {
  for (const mixer_kind kind : all_mixers)
    if (name_of(kind) == name) return kind;
  return std::nullopt;
}

template <class Real>
std::unique_ptr<mixer<Real>> make_mixer(mixer_kind kind, const std::string& name, const mixer_shape& shape) {
  if (kind == mixer_kind::attention) return std::make_unique<attention<Real>>(shape);
  return make_aft_mixer<Real>(kind, name, shape);
}

template std::unique_ptr<mixer<float>> make_mixer(mixer_kind, const std::string&, const mixer_shape&);
template std::unique_ptr<mixer<double>> make_mixer(mixer_kind, const std::string&, const mixer_shape&);

}  // namespace examples
