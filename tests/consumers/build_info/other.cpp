// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

const char* other_build_info() {
  return aft::build_info();
}
