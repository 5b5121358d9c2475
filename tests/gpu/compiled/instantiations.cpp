// SPDX-License-Identifier: Apache-2.0
// The kernels of all other files of the program: those in the library aft::compiled, which so goes through every test
// of the operators. Nothing of them is compiled twice.
#include <aft/compiled/device_entries.hpp>
#include <aft/cuda/backend.hpp>

namespace aft {

namespace library = AFT_COMPILED_ENTRIES;

template <>
void add_with_aft_add_cuda_instantiations<float>::forward(const problem& p, void* stream) {
  library::compiled_cuda_forward_f32(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<float>::backward(const backward_problem& p, void* stream) {
  library::compiled_cuda_backward_f32(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<float>::attention_map(const problem& p, void* stream) {
  library::compiled_cuda_attention_map_f32(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<float>::filter(const filter_problem& p, void* stream) {
  library::compiled_cuda_filter(p, stream);
}

template <>
void add_with_aft_add_cuda_instantiations<double>::forward(const problem& p, void* stream) {
  library::compiled_cuda_forward_f64(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<double>::backward(const backward_problem& p, void* stream) {
  library::compiled_cuda_backward_f64(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<double>::attention_map(const problem& p, void* stream) {
  library::compiled_cuda_attention_map_f64(p, stream);
}
template <>
void add_with_aft_add_cuda_instantiations<double>::filter(const filter_problem& p, void* stream) {
  library::compiled_cuda_filter(p, stream);
}

void add_with_aft_add_cuda_instantiations<void>::reset(const stream_ref& all_slots, index_t first, index_t last,
                                                       void* stream) {
  library::compiled_cuda_reset(all_slots, first, last, stream);
}
void add_with_aft_add_cuda_instantiations<void>::copy(const stream_ref& all_slots, const length_list& from,
                                                      const length_list& to, index_t n, void* stream) {
  library::compiled_cuda_copy(all_slots, from, to, n, stream);
}
void add_with_aft_add_cuda_instantiations<void>::read(const stream_ref& all_slots, index_t slot, void* to,
                                                      index_t bytes, void* stream) {
  library::compiled_cuda_read(all_slots, slot, to, bytes, stream);
}
void add_with_aft_add_cuda_instantiations<void>::serve(device_request& r, void* stream) {
  library::compiled_cuda_serve(r, stream);
}

}  // namespace aft
