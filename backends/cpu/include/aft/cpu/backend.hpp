// SPDX-License-Identifier: Apache-2.0
/// @file backend.hpp  The CPU backend's entry: which algorithm serves which problem.
#pragma once

#include <aft/core/dispatch.hpp>

#include "pair_backward.hpp"
#include "pair_forward.hpp"
#include "scan_backward.hpp"
#include "scan_forward.hpp"
#include "stencil_backward.hpp"
#include "stencil_forward.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace cpu_impl {

/// A filter slides over its grid: taps are lanes' own weights, no pair is looked up.
inline bool is_stencil(const problem& p) {
  return p.bias.kind == bias_kind::filter && !p.pair_mask();
}

/// No pair has a weight of its own: AFT-simple, or AFT-local with an empty window.
inline bool is_scan(const problem& p) {
  if (p.pair_mask() || p.bias.kind == bias_kind::filter) return false;
  if (!p.win.bounded) return p.bias.kind == bias_kind::none;
  return p.win.before + p.win.after + 1 <= 0 && !p.excluded;
}

}  // namespace cpu_impl

template <class C, family F>
void cpu_forward(const problem& p, const cpu& exec) {
  if constexpr (F == family::conv) {
    if (cpu_impl::is_stencil(p)) return cpu_impl::stencil_forward<C>(p, exec);
  }
  if constexpr (F == family::simple || F == family::local) {
    if (cpu_impl::is_scan(p)) return cpu_impl::scan_forward<C>(p, exec);
  }
  cpu_impl::scratch memory(exec);
  cpu_impl::pair_forward<C>(p, cpu_impl::row_state{}, exec, memory);
}

template <class C, family F>
void cpu_backward(const backward_problem& p, const cpu& exec) {
  if constexpr (F == family::conv) {
    if (cpu_impl::is_stencil(p)) return cpu_impl::stencil_backward<C>(p, exec);
  }
  if constexpr (F == family::simple || F == family::local) {
    if (cpu_impl::is_scan(p)) return cpu_impl::scan_backward<C>(p, exec);
  }
  cpu_impl::scratch memory(exec);
  cpu_impl::pair_backward<C>(p, exec, memory);
}

}  // namespace AFT_ISA
}  // namespace aft
