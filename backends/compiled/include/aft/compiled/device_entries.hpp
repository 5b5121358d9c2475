// SPDX-License-Identifier: Apache-2.0
/// @file compiled/device_entries.hpp  What a library that was built with CUDA exports to C++ besides.
#pragma once

#include <aft/core/problem/dispatch.hpp>

namespace aft::AFT_COMPILED_ENTRIES {

// Named from the version as those of the CPU are (aft/compiled/backend.hpp). `stream` is a cudaStream_t.
#define AFT_OF_LIBRARY [[gnu::visibility("default")]]
AFT_OF_LIBRARY void compiled_cuda_forward_f32(const problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_forward_f64(const problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_backward_f32(const backward_problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_backward_f64(const backward_problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_attention_map_f32(const problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_attention_map_f64(const problem& p, void* stream);
// Of no type, or of double arithmetic whatever the type is.
AFT_OF_LIBRARY void compiled_cuda_filter(const filter_problem& p, void* stream);
AFT_OF_LIBRARY void compiled_cuda_reset(const stream_ref& all_slots, index_t first, index_t last, void* stream);
AFT_OF_LIBRARY void compiled_cuda_copy(const stream_ref& all_slots, const length_list& from, const length_list& to,
                                       index_t n, void* stream);
AFT_OF_LIBRARY void compiled_cuda_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes,
                                       void* stream);
AFT_OF_LIBRARY void compiled_cuda_serve(device_request& r, void* stream);
#undef AFT_OF_LIBRARY

}  // namespace aft::AFT_COMPILED_ENTRIES
