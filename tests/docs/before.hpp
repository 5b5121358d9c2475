// SPDX-License-Identifier: Apache-2.0
/// @file before.hpp  What the blocks of all documents may take for granted: sizes, and views of memory that is there.

#include <aft/aft.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

inline constexpr aft::index_t B = 2, T = 16, d = 8, H = 2, n = 3, hk = 2, taps = 5;

/// Zeros for views that must not overlap.
inline float* floats(std::size_t count) {
  static std::vector<std::vector<float>> all;
  return all.emplace_back(count).data();
}

inline const aft::tensor_view<const float, 3> q{floats(B * T * d), {B, T, d}}, k{floats(B * T * d), {B, T, d}},
    v{floats(B * T * d), {B, T, d}}, dy{floats(B * T * d), {B, T, d}};
inline const aft::tensor_view<float, 3> y{floats(B * T * d), {B, T, d}}, dq{floats(B * T * d), {B, T, d}},
    dk{floats(B * T * d), {B, T, d}}, dv{floats(B * T * d), {B, T, d}};
inline const aft::dense_bias bias{aft::tensor_view<const float, 2>{floats(T * T), {T, T}}};
inline const aft::dense_bias dbias{aft::tensor_view<float, 2>{floats(T * T), {T, T}}};
inline const aft::tensor_view<const float, 2> filter{floats(H * taps), {H, taps}};
inline const aft::tensor_view<float, 2> dfilter{floats(H * taps), {H, taps}};
