// SPDX-License-Identifier: Apache-2.0
// The register tiles of the stencil: filters that lanes share or have each their own, and, with two weights, gradients
// of filters.
#include <aft/cpu/stencil/microkernel.hpp>

namespace aft::inline AFT_ISA::cpu_impl {
template void stencil_outputs<float, 1>(const stencil_run<float>&, index_t, index_t, float*);
template void stencil_outputs<float, 2>(const stencil_run<float>&, index_t, index_t, float*);
}  // namespace aft::inline AFT_ISA::cpu_impl
