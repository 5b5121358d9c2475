// SPDX-License-Identifier: Apache-2.0
/// @file gemm_inputs.hpp  The bfloat16 product without the fold behind it: packed, multiplied, and what it has flagged.
/// On the emulated device, and compiled by nvcc on a real one.
#pragma once

#include <doctest/doctest.h>

#include <aft/cuda/launch/bf16_gemm.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "product_inputs.hpp"

namespace aft::test {

/// Numbers that bfloat16 has, so that they lose nothing before the product.
inline inputs in_bfloat16(inputs x) {
  for (std::vector<float>* part : {&x.k, &x.v, &x.w})
    for (float& e : *part) e = static_cast<float>(bfloat16(e));
  return x;
}

struct gemm_element {
  float average;
  bool flagged;
};

/// What a test changes of the call, and of what has been packed.
struct gemm_changes {
  std::vector<std::int64_t> lengths{};  ///< of each batch element
  std::vector<std::uint8_t> mask{};     ///< of keys
  index_t rows_at_once = 0;             ///< 0: all
  std::function<void(const gemm_plan&)> between{};
};

#if defined(AFT_DEVICE_EMULATOR)

template <class T>
using device_vector = std::vector<T>;

template <class T>
std::vector<T> read_back(const device_vector<T>& from) {
  return from;
}
template <class T>
void write_over(device_vector<T>& to, const std::vector<T>& from) {
  to = from;
}
inline void finish_kernels() {}
template <class Engine>
bool has_engine() {
  return true;
}

#else

/// A device's own memory, which the host copies to and from: where pages move between the two, a kernel that goes wrong
/// can take the driver with it, and it would not be the memory that callers have.
template <class T>
class device_vector {
 public:
  explicit device_vector(std::size_t n, T value = T()) : device_vector(std::vector<T>(n, value)) {}
  template <class It>
  device_vector(It first, It last) : device_vector(std::vector<T>(first, last)) {}
  device_vector(device_vector&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  device_vector(const device_vector&) = delete;
  device_vector& operator=(const device_vector&) = delete;
  ~device_vector() { (void)cudaFree(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  bool empty() const { return size_ == 0; }
  void write(const std::vector<T>& from) {
    REQUIRE(from.size() == size_);
    if (empty()) return;
    REQUIRE(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    // Of pageable memory it may return before the last part is on the device, and other streams do not wait for it.
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  std::vector<T> read() const {
    std::vector<T> to(size_);
    if (!empty()) REQUIRE(cudaMemcpy(to.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return to;
  }

 private:
  explicit device_vector(const std::vector<T>& from) : size_(from.size()) {
    if (!empty()) REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)) == cudaSuccess);
    write(from);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
std::vector<T> read_back(const device_vector<T>& from) {
  return from.read();
}
template <class T>
void write_over(device_vector<T>& to, const std::vector<T>& from) {
  to.write(from);
}
inline void finish_kernels() {
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}
/// Cases of a kernel that the device has no code for have nothing to look at.
template <class Engine>
bool has_engine() {
  return Engine::engine == gemm_engine::warps || gemm_engine_of_device<query_rows>() == gemm_engine::warpgroups;
}

#endif

/// Either kernel.
struct on_warps {
  static constexpr gemm_engine engine = gemm_engine::warps;
};
struct on_warpgroups {
  static constexpr gemm_engine engine = gemm_engine::warpgroups;
};

/// Packs and multiplies: (B, Tq, d).
template <class Engine>
std::vector<gemm_element> run_gemm(inputs x, const gemm_changes& changes = {}) {
  const auto on_device = [](const auto& from) {
    return device_vector<typename std::decay_t<decltype(from)>::value_type>(from.begin(), from.end());
  };
  const auto bytes_of = [](const auto& of) { return reinterpret_cast<const std::byte*>(of.data()); };
  device_vector<float> k = on_device(x.k), v = on_device(x.v), w = on_device(x.w);
  device_vector<float> out(static_cast<std::size_t>(x.B * x.Tq * x.d), std::nanf(""));
  const device_vector<std::int64_t> lengths = on_device(changes.lengths);
  const device_vector<std::uint8_t> mask = on_device(changes.mask);
  device_call<float> call = dense_call(x);
  call.k.data = reinterpret_cast<std::byte*>(k.data());
  call.v.data = reinterpret_cast<std::byte*>(v.data());
  call.bias.w.data = reinterpret_cast<std::byte*>(w.data());
  call.average = scratch_tensor(out.data(), call.positions, x.d);
  if (!lengths.empty()) {
    call.lengths = {bytes_of(lengths), sizeof(std::int64_t), true};
  }
  if (!mask.empty()) {
    call.mask = bytes_of(mask);
    call.mask_ss = 1;
  }
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tq);
  device_vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  gemm_plan whole = plan_gemm(cols, x.Tq, x.Tk, x.Tk);
  if (changes.rows_at_once > 0) whole.row_tiles = changes.rows_at_once / gemm_rows;
  device_vector<left_tile> left(static_cast<std::size_t>(whole.row_tiles * whole.left_tiles));
  device_vector<right_tile> right(static_cast<std::size_t>(whole.right_count()));
  device_vector<float> row_units(static_cast<std::size_t>(whole.left_rows()));
  device_vector<gemm_column> columns(static_cast<std::size_t>(whole.right_columns()));
  whole.left = left.data();
  whole.right = right.data();
  whole.row_units = row_units.data();
  whole.columns = columns.data();
  const call_stream stream("gemm", nullptr);
  pack_gemm_keys(stream, call, whole);
  finish_kernels();
  if (changes.between) {
    // The host looks at a copy of what has been packed.
    std::vector<right_tile> packed = read_back(right);
    gemm_plan copied = whole;
    copied.right = packed.data();
    changes.between(copied);
    write_over(right, packed);
  }
  for (index_t first = 0; first < x.Tq; first += whole.row_tiles * gemm_rows)
    multiply_gemm<query_rows>(stream, call, plan_rows(whole, rows, first), {}, Engine::engine);
  finish_kernels();

  const std::vector<std::uint32_t> flag_words = read_back(flags);
  const std::vector<float> averages = read_back(out);
  std::vector<gemm_element> result;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        const index_t column = b * x.d + c;
        const std::uint32_t word = flag_words[static_cast<std::size_t>(flag_word(rows, t, column / tuning::lanes))];
        result.push_back(
            {averages[static_cast<std::size_t>((b * x.Tq + t) * x.d + c)], (word >> column % tuning::lanes & 1u) != 0});
      }
  return result;
}

/// What tensor cores cut, relative to the largest |v|: at most 22 units of 2^-24 for every 16 keys, of num and of den,
/// and the float arithmetic around it.
inline long double gemm_cuts(const inputs& x) {
  const index_t steps = x.Tk / 16 + 4;
  return (2 * 22 * static_cast<long double>(steps) + 8) * 0x1p-24L;
}

/// What docs/cuda.md derives: that, and three roundings of a term by u.
inline long double gemm_bound(const inputs& x) {
  constexpr long double u = 0x1p-8L;
  return 3 * u * (1 + 4 * u) + gemm_cuts(x);
}

struct gemm_verdict {
  std::size_t flagged = 0, count = 0;
  long double worst = 0;  ///< error of what is not flagged, relative to the largest |v| that the row sees
};

/// `sees`: whether row t of batch element b sees key s.
template <class Sees>
gemm_verdict judge_gemm(const inputs& x, const std::vector<gemm_element>& elements, Sees sees) {
  gemm_verdict all;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        const gemm_element& e = elements[all.count++];
        all.flagged += e.flagged ? 1 : 0;
        if (e.flagged) continue;
        const auto at = [&](index_t s) { return static_cast<std::size_t>((b * x.Tk + s) * x.d + c); };
        const auto logit = [&](index_t s) -> long double {
          const long double w = x.w[static_cast<std::size_t>(t * x.Tk + s)];
          return (x.causal && s > t) || !sees(b, t, s) ? -std::numeric_limits<long double>::infinity() : x.k[at(s)] + w;
        };
        long double top = -std::numeric_limits<long double>::infinity(), num = 0, den = 0, scale = 0;
        for (index_t s = 0; s < x.Tk; ++s) top = std::max(top, logit(s));
        for (index_t s = 0; s < x.Tk; ++s) {
          const long double z = logit(s);
          if (z == -std::numeric_limits<long double>::infinity()) continue;
          const long double a = std::exp(z - top);
          num += a * x.v[at(s)];
          den += a;
          scale = std::max(scale, std::abs(static_cast<long double>(x.v[at(s)])));
        }
        const long double error = den == 0 ? (e.average == 0 ? 0 : 1) : std::abs(e.average - num / den) / scale;
        all.worst = std::isnan(e.average) ? std::numeric_limits<long double>::infinity() : std::max(all.worst, error);
      }
  return all;
}
inline gemm_verdict judge_gemm(const inputs& x, const std::vector<gemm_element>& elements) {
  return judge_gemm(x, elements, [](index_t, index_t, index_t) { return true; });
}

/// Random numbers of some shape.
inline inputs gemm_inputs(unsigned seed, index_t B, index_t Tq, index_t Tk, index_t d, float scale = 1,
                          float v_scale = 1) {
  inputs x;
  x.B = B;
  x.Tq = Tq;
  x.Tk = Tk;
  x.d = d;
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  for (index_t i = 0; i < B * Tk * d; ++i) x.k.push_back(scale * normal(engine));
  for (index_t i = 0; i < B * Tk * d; ++i) x.v.push_back(v_scale * normal(engine));
  for (index_t i = 0; i < Tq * Tk; ++i) x.w.push_back(scale * normal(engine));
  return in_bfloat16(x);
}

}  // namespace aft::test
