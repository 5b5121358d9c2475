// SPDX-License-Identifier: Apache-2.0
// What forms the operands of the register tile: e^w in panels, [e^k v, e^k] in columns.
#include <aft/cpu/gemm/pack_keys.hpp>
#include <aft/cpu/gemm/pack_weights.hpp>

namespace aft::inline AFT_ISA::cpu_impl {
template void pack_weight_panel<float>(index_t, index_t, const log_weights<float>&, bool, bool, bool, float*,
                                       row_scale<float>&);
template void form_keys<float, float, true>(const float*, index_t, const float*, index_t, index_t, index_t, index_t,
                                            bool, float*, key_packer<float>, key_range<float>&);
}  // namespace aft::inline AFT_ISA::cpu_impl
