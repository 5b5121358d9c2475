// SPDX-License-Identifier: Apache-2.0
/// @file tensors.hpp  Correct arguments, so that each case differs from a right call in its mistake alone.
#pragma once

#include <aft/aft.hpp>

inline const float* const input = nullptr;
inline float* const output = nullptr;

inline const aft::tensor_view<const float, 3> q{input, {2, 5, 4}}, k = q, v = q, dy = q;
inline const aft::tensor_view<float, 3> y{output, {2, 5, 4}}, dq = y, dk = y, dv = y;
inline const aft::tensor_view<const float, 2> w{input, {5, 5}};
inline const aft::tensor_view<float, 2> dw{output, {5, 5}};
