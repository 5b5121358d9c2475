// SPDX-License-Identifier: Apache-2.0
// expect: include <aft/aft.hpp> instead of the header of an operator
// flags: -std=c++20
#if defined(AFT_CONTROL)
#include <aft/aft.hpp>
#else
#include <aft/ops/simple.hpp>
#endif

void call(const aft::tensor_view<const float, 3>& q, const aft::tensor_view<float, 3>& y) {
  aft::simple(aft::cpu{}, q, q, q, y);
}
