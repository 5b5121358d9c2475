// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/mixers/mixer.hpp"

namespace examples {

/// A mixer made of one operator of the library on sequences; null for the other kinds.
template <class Real>
std::unique_ptr<mixer<Real>> make_aft_mixer(mixer_kind kind, const std::string& name, const mixer_shape& shape);

}  // namespace examples
