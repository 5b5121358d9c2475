// SPDX-License-Identifier: Apache-2.0
/// @file processor.hpp  Which levels the processor and its operating system can run.
#pragma once

#include <aft/core/config.hpp>

namespace aft::AFT_COMPILED_VERSION {

bool has_v2();
bool has_v3();
bool has_v4();
bool has_v4_bf16();
bool has_neon();
bool has_neon_bf16();

/// Whether the instruction that v4-bf16 has beyond v4 makes calls faster and not slower.
bool gains_by_v4_bf16();

}  // namespace aft::AFT_COMPILED_VERSION
