// SPDX-License-Identifier: Apache-2.0
#include "level.hpp"

#define AFT_TABLE_(level) level##_f32
#define AFT_TABLE(level) AFT_TABLE_(level)

const aft::AFT_COMPILED_VERSION::kernels aft::AFT_COMPILED_VERSION::AFT_TABLE(AFT_COMPILED_LEVEL) =
    aft::kernels_of_this_level<float>();
