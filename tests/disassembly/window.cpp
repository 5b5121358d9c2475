// SPDX-License-Identifier: Apache-2.0
// The products that the gradient of a window's bias is summed from.
#include <aft/cpu/window/bias_gradient.hpp>

namespace aft::inline AFT_ISA::cpu_impl {
// What an explicit instantiation names may be private.
template void window_products<float>::multiply_tile(index_t, const float*, index_t, const float*, bool, float*);
}  // namespace aft::inline AFT_ISA::cpu_impl
