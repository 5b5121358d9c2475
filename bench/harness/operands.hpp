// SPDX-License-Identifier: Apache-2.0
/// @file operands.hpp  The arrays that the contestants of a race share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <type_traits>

#include <aft/aft.hpp>

namespace aft_bench {

using aft::index_t;

/// An array at a cache line's border, as every allocator of the libraries compared here gives them.
template <class T>
class buffer {
 public:
  buffer() = default;
  explicit buffer(index_t n)
      : size_(n), data_(static_cast<T*>(::operator new (bytes(), std::align_val_t{64})), deleter{}) {
    std::uninitialized_fill_n(data_.get(), size_, T{});
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  index_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }

 private:
  struct deleter {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  index_t size_ = 0;
  std::unique_ptr<T, deleter> data_;
};

/// Normally distributed values, as layers behind a normalisation see; the same for every run.
template <class T>
buffer<T> normal_values(index_t n, unsigned seed, double scale = 1) {
  buffer<T> x(n);
  // Sums of four uniform numbers are normal enough and ten times as fast as the real thing on gigabytes.
  std::uint64_t state = 0x9e3779b97f4a7c15u * (seed + 1u);
  const double unit = scale * 1.7320508 / 65536.0;
  for (index_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t bits = state ^ (state >> 29);
    const auto sum = static_cast<std::int64_t>((bits & 0xffffu) + ((bits >> 16) & 0xffffu) + ((bits >> 32) & 0xffffu) +
                                               ((bits >> 48) & 0xffffu));
    x.data()[i] = static_cast<T>(static_cast<float>(static_cast<double>(sum - 2 * 65535) * unit));
  }
  return x;
}

/// What log-sum-exp is stored as.
template <class T>
using lse_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

struct shape {
  index_t B, T, d;
  std::string text() const {
    std::string name = "B";
    name.append(std::to_string(B)).append("_T").append(std::to_string(T)).append("_d").append(std::to_string(d));
    return name;
  }
  index_t size() const { return B * T * d; }
};

/// The four shapes of the tables: many short sequences to one long one.
inline constexpr shape shapes[] = {{8, 1024, 512}, {32, 197, 384}, {2, 3072, 256}, {1, 4096, 512}};

template <class T>
const char* type_name() {
  return aft::name_of(aft::dtype_of<T>);
}

/// Inputs and outputs of calls on sequences. Gradients are made when asked for.
template <class T>
struct sequences {
  explicit sequences(const shape& of)
      : s(of),
        q(normal_values<T>(s.size(), 1)),
        k(normal_values<T>(s.size(), 2)),
        v(normal_values<T>(s.size(), 3)),
        y(s.size()) {}

  void make_bias() { w = normal_values<T>(s.T * s.T, 4); }
  /// Scaled so that u v^T has the deviation of a dense bias.
  void make_factors(index_t rank) {
    const double scale = std::pow(static_cast<double>(rank), -0.25);
    factor_rank = rank;
    u = normal_values<T>(s.T * rank, 6, scale);
    f = normal_values<T>(s.T * rank, 7, scale);
  }
  void make_gradients() {
    dy = normal_values<T>(s.size(), 5);
    dq = buffer<T>(s.size());
    dk = buffer<T>(s.size());
    dv = buffer<T>(s.size());
    dw = buffer<T>(w.size());
    lse = buffer<lse_type<T>>(s.size());
    average = buffer<T>(s.size());
  }

  template <class U>
  aft::tensor_view<const U, 3> in(const buffer<U>& x) const {
    return {x.data(), {s.B, s.T, s.d}};
  }
  template <class U>
  aft::tensor_view<U, 3> out(buffer<U>& x) const {
    return {x.data(), {s.B, s.T, s.d}};
  }
  auto bias() const { return aft::dense_bias{aft::tensor_view<const T, 2>{w.data(), {s.T, s.T}}}; }
  auto dbias() { return aft::dense_bias{aft::tensor_view<T, 2>{dw.data(), {s.T, s.T}}}; }
  auto factors() const {
    return aft::factorized_bias{aft::tensor_view<const T, 2>{u.data(), {s.T, factor_rank}},
                                aft::tensor_view<const T, 2>{f.data(), {s.T, factor_rank}}};
  }
  aft::options kept(bool causal = false) { return {.causal = causal, .lse = out(lse), .average = out(average)}; }

  shape s;
  index_t factor_rank = 0;
  buffer<T> q, k, v, y, w, u, f, dy, dq, dk, dv, dw, average;
  buffer<lse_type<T>> lse;
};

}  // namespace aft_bench
