// SPDX-License-Identifier: Apache-2.0
/// @file choice.hpp  Which of the levels in the library runs.
#pragma once

#include "../levels/kernels.hpp"

namespace aft::AFT_COMPILED_VERSION {

/// A level as the library holds it.
struct level {
  const char* name;  ///< as AFT_ISA spells it
  bool (*runs)();
  bool (*pays)();  ///< whether it is faster than the levels before it; null: yes
  const kernels* f32;
  const kernels* f64;
};

/// Made at the first call and the same from then on: results depend on the level.
struct choice {
  const char* isa;                 ///< the level that runs, `none` where there is none
  std::array<const char*, 7> all;  ///< those that could, from the least on; ends with null
  const kernels* f32;
  const kernels* f64;
};

const choice& chosen();

}  // namespace aft::AFT_COMPILED_VERSION
