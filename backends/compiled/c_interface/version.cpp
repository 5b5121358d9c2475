// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/core/config.hpp>
#include <aft/core/version.hpp>

// "avx2_fma" of isa_avx2_fma.
#define AFT_WORD_OF(name) AFT_WORD_AS_IT_IS(name)
#define AFT_WORD_AS_IT_IS(name) #name

int aft_version(void) {
  return 10000 * AFT_VERSION_MAJOR + 100 * AFT_VERSION_MINOR + AFT_VERSION_PATCH;
}

const char* aft_isa(void) {
  static constexpr char name[] = AFT_WORD_OF(AFT_HOST_ISA);
  constexpr int prefix = sizeof "isa_" - 1;
  return name + prefix;
}
