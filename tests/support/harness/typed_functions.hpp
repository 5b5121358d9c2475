// SPDX-License-Identifier: Apache-2.0
/// @file typed_functions.hpp  The seam between the harness and the files that compile the library for one storage type.
#pragma once

#include "harness.hpp"

namespace aft::test {

/// What harness.cpp needs of a storage type; an engine that does not serve the type has none.
struct typed_functions {
  results (*run_forward)(const setup&, const numbers&, const any_executor&) = nullptr;
  results (*run_backward)(const setup&, const numbers&, const any_executor&, const results*) = nullptr;
  /// What products of bfloat16 pairs may move an average by, in units of max|v|; 0: the engine makes none.
  long double pair_error = 0;
};

extern const typed_functions functions_f32, functions_f64, functions_f16, functions_bf16;

/// All types of the library as one compiler built it for one instruction set. A loaded engine is a shared object that
/// exports one of these under the name aft_test_engine.
struct engine {
  const char* isa;  ///< the namespace of its kernels
  const typed_functions *f32, *f64, *f16, *bf16;
};

/// What it should give.
struct typed_oracle {
  oracle_result (*evaluate_forward)(const setup&, const numbers&);
  oracle_result (*evaluate_backward)(const setup&, const numbers&);
};

extern const typed_oracle oracle_f32, oracle_f64, oracle_f16, oracle_bf16;

}  // namespace aft::test
