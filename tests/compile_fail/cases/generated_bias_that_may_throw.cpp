// SPDX-License-Identifier: Apache-2.0
// expect: aft::generated_bias: f must be noexcept
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::generated_bias{1, [](auto, auto, auto, auto, std::span<float>) noexcept {}}, y);
#else
  aft::full(aft::cpu{}, q, k, v, aft::generated_bias{1, [](auto, auto, auto, auto, std::span<float>) {}}, y);
#endif
}
