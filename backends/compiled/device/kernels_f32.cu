// SPDX-License-Identifier: Apache-2.0
// The kernels for float, half and bfloat16 data, and what is of no type.
#include <aft/compiled/device_entries.hpp>
#include <aft/cuda/backend.hpp>

namespace aft::AFT_COMPILED_ENTRIES {

void compiled_cuda_forward_f32(const problem& p, void* stream) {
  cuda_impl::run_forward<float>(p, stream);
}
void compiled_cuda_backward_f32(const backward_problem& p, void* stream) {
  cuda_impl::run_backward<float>(p, stream);
}
void compiled_cuda_attention_map_f32(const problem& p, void* stream) {
  cuda_impl::run_attention_map<float>(p, stream);
}
void compiled_cuda_filter(const filter_problem& p, void* stream) {
  cuda_impl::run_filter<float>(p, stream);
}
void compiled_cuda_reset(const stream_ref& all_slots, index_t first, index_t last, void* stream) {
  cuda_impl::run_reset(all_slots, first, last, stream);
}
void compiled_cuda_copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
                        void* stream) {
  cuda_impl::run_copy(all_slots, from, to, n, stream);
}
void compiled_cuda_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, void* stream) {
  cuda_impl::run_read(all_slots, slot, to, bytes, stream);
}
void compiled_cuda_serve(device_request& r, void* stream) {
  cuda_impl::run_serve(r, stream);
}

}  // namespace aft::AFT_COMPILED_ENTRIES
