// SPDX-License-Identifier: Apache-2.0
// What a test program asks an engine for that it loads.
#if defined(AFT_COMPILED)
#include <aft/aft.hpp>

#include <string_view>
#else
#include <aft/core/config.hpp>
#endif

#include "harness/typed_functions.hpp"

#define AFT_TEST_TEXT_(x) #x
#define AFT_TEST_TEXT(x) AFT_TEST_TEXT_(x)

extern "C" {
[[gnu::visibility("default")]] extern const aft::test::engine aft_test_engine;
#if defined(AFT_COMPILED)
// The library chooses its level while the program loads it. Of one that adds products of bfloat16 the other types have
// the kernels of the level below, which is an engine too.
const aft::test::engine aft_test_engine = [] {
  using namespace aft::test;
  if (std::string_view(aft::isa()).ends_with("-bf16"))
    return engine{aft::isa(), nullptr, nullptr, nullptr, &functions_bf16};
  return engine{aft::isa(), &functions_f32, &functions_f64, &functions_f16, &functions_bf16};
}();
#else
const aft::test::engine aft_test_engine{AFT_TEST_TEXT(AFT_HOST_ISA), &aft::test::functions_f32,
                                        &aft::test::functions_f64, &aft::test::functions_f16,
                                        &aft::test::functions_bf16};
#endif
}
