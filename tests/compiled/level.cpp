// SPDX-License-Identifier: Apache-2.0
// Prints which level runs, which could, how its kernels were compiled, and a hash of what calls on it give.
#include <aft/aft.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#if defined(_OPENMP)
#error "the library keeps its threads to itself: a program that links it is not compiled for OpenMP"
#endif

namespace {

template <class T>
std::vector<T> wave(aft::index_t n, double step) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(3 * std::sin(step * static_cast<double>(i + 1)));
  return x;
}

std::uint64_t hash = 14695981039346656037u;

template <class T>
void add(const std::vector<T>& x) {
  for (const T& each : x) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &each, sizeof each);
    hash = (hash ^ bits) * 1099511628211u;
  }
}

/// `full`, whose sums each level forms in another order, with its gradient of keys.
template <class T>
void call() {
  constexpr aft::index_t B = 2, T_ = 41, d = 18;
  const auto q = wave<T>(B * T_ * d, 0.7), k = wave<T>(B * T_ * d, 1.3), w = wave<T>(T_ * T_, 0.37);
  std::vector<T> y(q.size()), dk(q.size());
  using in = aft::tensor_view<const T, 3>;
  using out = aft::tensor_view<T, 3>;
  const in vq{q.data(), {B, T_, d}}, vk{k.data(), {B, T_, d}};
  const aft::dense_bias bias{aft::tensor_view<const T, 2>{w.data(), {T_, T_}}};
  aft::full(aft::cpu{.threads = 2}, vq, vk, vq, bias, out{y.data(), {B, T_, d}});
  aft::full_backward(aft::cpu{}, vq, vk, vq, bias, vq, aft::no_grad, out{dk.data(), {B, T_, d}}, aft::no_grad,
                     aft::no_grad);
  add(y);
  add(dk);
  // A function of this file, which the library calls; the same numbers give the same bits.
  const aft::generated_bias made{
      1, [&](aft::index_t, aft::index_t, aft::index_t t, aft::index_t s0, std::span<T> row) noexcept {
        std::memcpy(row.data(), w.data() + t * T_ + s0, row.size() * sizeof(T));
      }};
  std::vector<T> z(y.size()), dw(w.size());
  const aft::generated_bias_gradient taken{
      [&](aft::index_t, aft::index_t, aft::index_t, aft::index_t t, aft::index_t s0, std::span<const T> row) noexcept {
        std::memcpy(dw.data() + t * T_ + s0, row.data(), row.size() * sizeof(T));
      },
      3};
  aft::full(aft::cpu{.threads = 2}, vq, vk, vq, made, out{z.data(), {B, T_, d}});
  bool same = z == y;
  aft::full_backward(aft::cpu{}, vq, vk, vq, made, vq, aft::no_grad, out{z.data(), {B, T_, d}}, aft::no_grad, taken);
  same = same && z == dk;
  if (!same) {
    std::puts("a generated bias gives other bits than a dense one of the same numbers");
    std::exit(1);
  }
  add(dw);
}

}  // namespace

int main() {
  std::printf("isa %s\nisas", aft::isa());
  for (const std::string& name : aft::isas()) std::printf(" %s", name.c_str());
  std::printf("\nbuild_info %s\n", aft::build_info());
  try {
    call<float>();
    call<double>();
  } catch (const aft::device_error& error) {
    std::puts(error.what());
    return 3;
  }
  try {
    const float x = 0;
    const aft::tensor_view<const float, 2> in{&x, {1, 1}};
    aft::simple(in, in, in, aft::tensor_view<float, 2>{nullptr, {1, 1}});
    return std::puts("null was accepted"), 1;
  } catch (const aft::shape_error&) {
  }
  std::printf("hash %016llx\n", static_cast<unsigned long long>(hash));
}
