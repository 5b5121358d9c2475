// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

int aft_version(void) {
  return 10000 * AFT_VERSION_MAJOR + 100 * AFT_VERSION_MINOR + AFT_VERSION_PATCH;
}

const char* aft_isa(void) {
  return aft::isa();
}
