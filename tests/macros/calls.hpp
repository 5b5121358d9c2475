// SPDX-License-Identifier: Apache-2.0
// Every public call, every option and every kind of bias, written where the macros are defined.
#pragma once

#include <aft/aft.hpp>

template <class T>
void call_everything(const aft::tensor_view<T, 3>& x, const aft::tensor_view<T, 2>& w,
                     const aft::tensor_view<float, 3>& lse) {
  const aft::cpu exec{1};
  const aft::options opt{.gate_fn = aft::gate::sigmoid, .causal = true, .lse = lse, .average = x};
  const aft::dense_bias bias{w};
  const aft::factorized_bias factors{w, w};
  const aft::banded_bias band{w};
  const aft::generated_bias made{1, [](auto, auto, auto, auto, auto row) noexcept { row[0] = 0; }};
  const aft::generated_bias_gradient taken{[](auto, auto, auto, auto, auto, auto) noexcept {}, 1};
  const aft::window window{1, 1};
  aft::full(exec, x, x, x, bias, x, opt);
  aft::full_backward(exec, x, x, x, factors, x, x, x, x, factors, opt);
  aft::full_backward(exec, x, x, x, made, x, x, x, x, taken, opt);
  aft::local(exec, x, x, x, band, window, x, opt);
  aft::local_backward(exec, x, x, x, band, window, x, x, x, x, band, opt);
  aft::simple(exec, x, x, x, x, opt);
  aft::simple_backward(exec, x, x, x, x, x, x, x, opt);
  aft::conv(exec, x, x, x, w, x, opt);
  aft::conv_backward(exec, x, x, x, w, x, x, x, x, w, opt);
}
