// SPDX-License-Identifier: Apache-2.0
// The kernels for double data.
#include <aft/compiled/device_entries.hpp>
#include <aft/cuda/backend.hpp>

namespace aft::AFT_COMPILED_ENTRIES {

void compiled_cuda_forward_f64(const problem& p, void* stream) {
  cuda_impl::run_forward<double>(p, stream);
}
void compiled_cuda_backward_f64(const backward_problem& p, void* stream) {
  cuda_impl::run_backward<double>(p, stream);
}
void compiled_cuda_attention_map_f64(const problem& p, void* stream) {
  cuda_impl::run_attention_map<double>(p, stream);
}

}  // namespace aft::AFT_COMPILED_ENTRIES
