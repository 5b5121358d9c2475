// SPDX-License-Identifier: Apache-2.0
// What clang-tidy reads: every public header, and calls that instantiate the operators and the CPU backend.
#include <array>

#include <aft/aft.hpp>

namespace {

using in = aft::tensor_view<const float, 3>;
using out = aft::tensor_view<float, 3>;

}  // namespace

void lint_forward(const in& x, const out& y, const aft::tensor_view<const float, 2>& w) {
  const aft::dense_bias dense{w};
  const aft::factorized_bias factorized{w, w};
  aft::full(aft::cpu{}, x, x, x, dense, y);
  aft::full(aft::cpu{}, x, x, x, factorized, y);
  aft::local(aft::cpu{}, x, x, x, aft::banded_bias{w}, aft::window::inclusive(2), y);
  aft::simple(aft::cpu{}, x, x, x, y);
  aft::conv(aft::cpu{}, x, x, x, w, y);
}

void lint_backward(const in& x, const out& g, const aft::tensor_view<const double, 3>& x64,
                   const aft::tensor_view<double, 3>& g64, const aft::tensor_view<const float, 2>& w,
                   const aft::tensor_view<float, 2>& dw) {
  aft::full_backward(aft::cpu{}, x, x, x, aft::dense_bias{w}, x, g, g, g, aft::dense_bias{dw});
  const auto made = [](auto, auto, auto, auto, std::span<float> row) noexcept { row[0] = 0; };
  const auto taken = [](auto, auto, auto, auto, auto, std::span<const float>) noexcept {};
  aft::full_backward(aft::cpu{}, x, x, x, aft::generated_bias{1, made}, x, g, g, g,
                     aft::generated_bias_gradient{taken, 2});
  aft::local_backward(aft::cpu{}, x, x, x, aft::factorized_bias{w, w}, aft::window::strict(2), x, g, g, g,
                      aft::factorized_bias{dw, dw});
  aft::conv_backward(aft::cpu{}, x, x, x, w, x, g, g, g, dw);
  aft::simple_backward(aft::cpu{}, x64, x64, x64, x64, g64, g64, g64);
}
