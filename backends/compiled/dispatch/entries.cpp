// SPDX-License-Identifier: Apache-2.0
// What the library exports to C++.
#include <aft/compiled/backend.hpp>

#include "choice.hpp"

#if defined(__x86_64__) && defined(__SSE3__)
#error "aft::compiled: what chooses a level must run on every processor: take -m flags out of CMAKE_CXX_FLAGS"
#endif

namespace library = aft::AFT_COMPILED_VERSION;

namespace aft::AFT_COMPILED_ENTRIES {

namespace {

std::size_t index_of(family asked) {
  return static_cast<std::size_t>(asked);
}

}  // namespace

void compiled_forward_f32(family asked, const problem& p, const cpu& exec) {
  library::chosen().f32->forward[index_of(asked)](p, exec);
}
void compiled_forward_f64(family asked, const problem& p, const cpu& exec) {
  library::chosen().f64->forward[index_of(asked)](p, exec);
}
void compiled_backward_f32(family asked, const backward_problem& p, const cpu& exec) {
  library::chosen().f32->backward[index_of(asked)](p, exec);
}
void compiled_backward_f64(family asked, const backward_problem& p, const cpu& exec) {
  library::chosen().f64->backward[index_of(asked)](p, exec);
}

const char* compiled_isa() noexcept {
  return library::chosen().isa;
}
const char* const* compiled_isas() noexcept {
  return library::chosen().all.data();
}
const char* compiled_build_info() noexcept {
  return library::chosen().f32->build_info();
}

}  // namespace aft::AFT_COMPILED_ENTRIES
