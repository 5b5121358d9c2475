// SPDX-License-Identifier: Apache-2.0
// As a file that includes Eigen before aft; tests/headers/CMakeLists.txt says what is asked of it.
#include <immintrin.h>

#include <aft/aft.hpp>

void average(const aft::tensor_view<const float, 3>& x, const aft::tensor_view<const float, 2>& w,
             const aft::tensor_view<float, 3>& y) {
  aft::full(aft::cpu{}, x, x, x, aft::dense_bias{w}, y);
}
