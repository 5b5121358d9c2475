// SPDX-License-Identifier: Apache-2.0
// The loops of the scan: keys folded with and without rows, and gradients of rows and keys.
#include <aft/cpu/scan/backward/kernel_causal.hpp>
#include <aft/cpu/scan/kernel.hpp>

namespace aft::inline AFT_ISA::cpu_impl::scan {
template panel_place fold_columns<float, emission::nothing, reach::ordinary, scan_tuning<float>::rows>(
    const fold_job<float>&, const segment&, const fold_inputs<float>&, index_t, panel_place);
template panel_place fold_columns<float, emission::gated, reach::ordinary, scan_tuning<float>::rows>(
    const fold_job<float>&, const segment&, const fold_inputs<float>&, index_t, panel_place);
template panel_place sum_uniform_rows<float, scan_tuning<float>::rows>(const reverse_job<float>&,
                                                                       const row_inputs<float>&, const segment&,
                                                                       index_t, panel_place);
template index_t add_causal_rows<float, true>(const reverse_job<float>&, const row_inputs<float>&,
                                              const reverse_keys<float>&, const segment&, index_t);
template index_t add_causal_rows<float, false>(const reverse_job<float>&, const row_inputs<float>&,
                                               const reverse_keys<float>&, const segment&, index_t);
}  // namespace aft::inline AFT_ISA::cpu_impl::scan
