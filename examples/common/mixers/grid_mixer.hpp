// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/mixers/mixer.hpp"

namespace examples {

/// AFT-conv on a grid of shape.columns columns and any number of rows: a filter of window x window taps for every head,
/// reparameterised by a gain and a shift (AFT Eq. 6 and 8).
template <class Real>
std::unique_ptr<mixer<Real>> make_grid_mixer(const std::string& name, const mixer_shape& shape);

}  // namespace examples
