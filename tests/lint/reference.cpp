// SPDX-License-Identifier: Apache-2.0
// What clang-tidy reads of the reference.
#include <aft/reference/reference.hpp>

aft::reference::backward_result<long double> lint_reference(const aft::tensor_view<const float, 3>& x,
                                                            const aft::tensor_view<const float, 2>& w) {
  aft::reference::full<double>(x, x, x, aft::dense_bias{w});
  aft::reference::simple<double>(x, x, x);
  aft::reference::local_backward<double>(x, x, x, aft::banded_bias{w}, aft::window::inclusive(2), x);
  aft::reference::conv_backward<double>(x, x, x, w, x);
  const aft::generated_bias made{1, [](auto, auto, auto, auto, std::span<double> row) noexcept { row[0] = 0; }};
  aft::reference::full<double>(x, x, x, made);
  return aft::reference::full_backward<long double>(x, x, x, aft::factorized_bias{w, w}, x);
}
