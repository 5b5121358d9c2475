// SPDX-License-Identifier: Apache-2.0
// The register tile, alone: what check_loops.py reads of it.
#include <aft/cpu/gemm/microkernel.hpp>

namespace aft::inline AFT_ISA::cpu_impl {
template void gemm_panel<float>(index_t, index_t, const float*, const float*, float*, bool,
                                const prefetched_lines<float>&, tile_edges);
template void gemm_panel<double>(index_t, index_t, const double*, const double*, double*, bool,
                                 const prefetched_lines<double>&, tile_edges);
}  // namespace aft::inline AFT_ISA::cpu_impl
