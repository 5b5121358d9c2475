// SPDX-License-Identifier: Apache-2.0
/// @file errors.hpp  From exceptions to the codes and texts of the C interface.
#pragma once

#include <aft/aft.h>

namespace aft::c_interface {

/// The code for the exception that is being handled, whose text becomes this thread's aft_last_error.
int report() noexcept;

/// Runs f, from which no exception comes out.
template <class F>
int guarded(const F& f) noexcept {
  try {
    f();
    return AFT_OK;
  } catch (...) {
    return report();
  }
}

}  // namespace aft::c_interface
