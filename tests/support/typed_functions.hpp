// SPDX-License-Identifier: Apache-2.0
/// @file typed_functions.hpp  The seam between the harness and the files that compile the library for one storage type.
#pragma once

#include "harness.hpp"

namespace aft::test {

/// What harness.cpp needs of a storage type.
struct typed_functions {
  results (*run_forward)(const setup&, const numbers&, const any_executor&);
  results (*run_backward)(const setup&, const numbers&, const any_executor&, const results*);
  bool pairs = false;  ///< the engine multiplies bfloat16 pairs where it may
};

extern const typed_functions functions_f32, functions_f64, functions_f16, functions_bf16;

/// What it should give.
struct typed_oracle {
  oracle_result (*evaluate_forward)(const setup&, const numbers&);
  oracle_result (*evaluate_backward)(const setup&, const numbers&);
};

extern const typed_oracle oracle_f32, oracle_f64, oracle_f16, oracle_bf16;

}  // namespace aft::test
