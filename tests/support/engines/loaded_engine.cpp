// SPDX-License-Identifier: Apache-2.0
// What a test program asks an engine for that it loads. A pointer that a part of the engine would stand behind is null
// where this engine serves bfloat16 alone.
#include <aft/core/config.hpp>

#include "harness/typed_functions.hpp"

#define AFT_TEST_TEXT_(x) #x
#define AFT_TEST_TEXT(x) AFT_TEST_TEXT_(x)

extern "C" {
[[gnu::visibility("default")]] extern const aft::test::engine aft_test_engine;
#if defined(AFT_TEST_BF16_ONLY)
const aft::test::engine aft_test_engine{AFT_TEST_TEXT(AFT_HOST_ISA), nullptr, nullptr, nullptr,
                                        &aft::test::functions_bf16};
#else
const aft::test::engine aft_test_engine{AFT_TEST_TEXT(AFT_HOST_ISA), &aft::test::functions_f32,
                                        &aft::test::functions_f64, &aft::test::functions_f16,
                                        &aft::test::functions_bf16};
#endif
}
