// SPDX-License-Identifier: Apache-2.0
/// @file calls.hpp  The same calls for each file of the mixed binary; AFT_MIX_NAME is the function that this file
/// makes.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <aft/aft.hpp>

namespace mix {

/// All outputs of a few calls, one after the other.
std::vector<float> AFT_MIX_NAME();

#define AFT_MIX_TEXT_(name) #name
#define AFT_MIX_TEXT(name) AFT_MIX_TEXT_(name)
#define AFT_MIX_JOIN_(name) name##_namespace
#define AFT_MIX_JOIN(name) AFT_MIX_JOIN_(name)
/// The namespace in which this file's code lies.
const char* AFT_MIX_JOIN(AFT_MIX_NAME)() {
  return AFT_MIX_TEXT(AFT_ISA);
}

// An anonymous namespace would hide what is tested: these are compiled per file by being spelled per file.
inline namespace AFT_ISA {

inline std::vector<float> wave(std::size_t n, double step, double scale) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * std::sin(step * static_cast<double>(i + 1)));
  return x;
}

}  // namespace AFT_ISA

std::vector<float> AFT_MIX_NAME() {
  constexpr aft::index_t B = 2, T = 37, d = 12, H = 3;
  constexpr auto n = static_cast<std::size_t>(B * T * d);
  const std::vector<float> q = wave(n, 0.7, 2), k = wave(n, 1.3, 4), v = wave(n, 2.1, 3), dy = wave(n, 0.9, 1);
  const std::vector<float> w = wave(static_cast<std::size_t>(H * T * T), 0.37, 3),
                           r = wave(static_cast<std::size_t>(H * 5), 1.9, 2);
  std::vector<float> all(9 * n + static_cast<std::size_t>(H * T * T), 0.0F);
  float* next = all.data();
  const auto take = [&next] {
    const aft::tensor_view<float, 3> view{next, {B, T, d}};
    next += n;
    return view;
  };
  using in = aft::tensor_view<const float, 3>;
  const in vq{q.data(), {B, T, d}}, vk{k.data(), {B, T, d}}, vv{v.data(), {B, T, d}}, vdy{dy.data(), {B, T, d}};
  const aft::dense_bias bias{in{w.data(), {H, T, T}}};
  const aft::cpu exec{.threads = 2};

  aft::simple(exec, vq, vk, vv, take(), aft::options{.gate_fn = aft::gate::silu});
#if !defined(AFT_MIX_SCAN_ONLY)
  aft::full(exec, vq, vk, vv, bias, take(), aft::options{.causal = true});
  aft::local(exec, vq, vk, vv, bias, aft::window::strict(4), take());
  aft::conv(exec, vq, vk, vv, aft::tensor_view<const float, 2>{r.data(), {H, 5}}, take());
  aft::simple_backward(exec, vq, vk, vv, vdy, take(), take(), take());
  const auto dk = take();
  const auto dv = take();
  const aft::dense_bias dbias{aft::tensor_view<float, 3>{next, {H, T, T}}};
  aft::full_backward(exec, vq, vk, vv, bias, vdy, aft::no_grad, dk, dv, dbias);
#endif
  // The refusals are part of what a file calls, and build their text with the standard library.
  try {
    aft::simple(exec, vq, in{k.data(), {B, T + 1, d}}, vv, aft::tensor_view<float, 3>{all.data(), {B, T, d}});
    all.clear();
  } catch (const aft::shape_error&) {
  }
  return all;
}

}  // namespace mix
