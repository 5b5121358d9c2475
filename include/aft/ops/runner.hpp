// SPDX-License-Identifier: Apache-2.0
/// @file runner.hpp  What an operator does with the record of its arguments once the types of them have been erased.
#pragma once

#include <aft/core/checks/prepare.hpp>
#include <aft/core/problem/dispatch.hpp>

namespace aft {
inline namespace AFT_ISA {

/// Checks a call and runs it. An executor that is made of another has a specialisation: it may check more, or make
/// several problems of one call.
template <class E>
struct runner {
  /// Throws shape_error before anything is written.
  template <class C, family F>
  static void forward(checks::call& c, const E& exec) {
    run_forward<C, F>(checks::prepare(c, exec), exec);
  }
  /// The same for gradients.
  template <class C, family F>
  static void backward(checks::call& c, const E& exec) {
    run_backward<C, F>(checks::prepare(c, exec), exec);
  }
};

}  // namespace AFT_ISA
}  // namespace aft
