// SPDX-License-Identifier: Apache-2.0
/// @file backend.hpp  The CPU backend's entry: which algorithm serves which problem.
#pragma once

#include <aft/core/dispatch.hpp>

#include "pair_backward.hpp"
#include "pair_forward.hpp"

namespace aft {
inline namespace AFT_ISA {

template <class C>
void cpu_forward(const problem& p, const cpu& exec) {
  cpu_impl::scratch memory(exec);
  cpu_impl::pair_forward<C>(p, cpu_impl::row_state{}, exec, memory);
}

template <class C>
void cpu_backward(const backward_problem& p, const cpu& exec) {
  cpu_impl::scratch memory(exec);
  cpu_impl::pair_backward<C>(p, exec, memory);
}

}  // namespace AFT_ISA
}  // namespace aft
