// SPDX-License-Identifier: Apache-2.0

#include "char_lm/ranks/started.hpp"

namespace examples::char_lm {

started::started(int*, char***) {}
started::~started() = default;

}  // namespace examples::char_lm
