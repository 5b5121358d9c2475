// SPDX-License-Identifier: Apache-2.0
// A user of the installed package: global and windowed attention, checked against the formula written out.
#include <cmath>
#include <cstdio>
#include <vector>

#include <aft/aft.hpp>

#if EXPECT_OPENMP && !defined(_OPENMP)
#error "the package did not pass OpenMP on"
#endif

bool backward_is_right();  // backward.cpp: a second file that includes the library into the same program

namespace {

constexpr int B = 2, T = 9, d = 4, H = 2;

double value(int i) {
  return std::sin(1.7 * i + 0.3);
}

// AFT Eq. 2 for one output; `reach` is the window, outside of which the bias counts as 0.
double expected(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                const std::vector<float>& w, int b, int t, int c, int reach) {
  double num = 0;
  double den = 0;
  for (int s = 0; s < T; ++s) {
    const int head = c / (d / H);
    const double bias =
        std::abs(t - s) < reach ? static_cast<double>(w[static_cast<std::size_t>((head * T + t) * T + s)]) : 0.0;
    const auto at = static_cast<std::size_t>((b * T + s) * d + c);
    const double a = std::exp(static_cast<double>(k[at]) + bias);
    num += a * static_cast<double>(v[at]);
    den += a;
  }
  const double gate = 1 / (1 + std::exp(-static_cast<double>(q[static_cast<std::size_t>((b * T + t) * d + c)])));
  return gate * num / den;
}

}  // namespace

int main() {
  std::vector<float> q(B * T * d), k(q.size()), v(q.size()), y(q.size()), w(H * T * T);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = static_cast<float>(value(static_cast<int>(i)));
    k[i] = static_cast<float>(3 * value(static_cast<int>(i) + 100));
    v[i] = static_cast<float>(value(static_cast<int>(i) + 200));
  }
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(2 * value(static_cast<int>(i) + 300));

  using view = aft::tensor_view<const float, 3>;
  const view vq{q.data(), {B, T, d}}, vk{k.data(), {B, T, d}}, vv{v.data(), {B, T, d}}, vw{w.data(), {H, T, T}};
  const aft::tensor_view<float, 3> vy{y.data(), {B, T, d}};

  for (const int reach : {T, 3}) {
    if (reach == T) {
      aft::full(aft::cpu{}, vq, vk, vv, aft::dense_bias{vw}, vy);
    } else {
      aft::local(vq, vk, vv, aft::dense_bias{vw}, aft::window::strict(reach), vy, aft::options{});
    }
    for (int b = 0; b < B; ++b) {
      for (int t = 0; t < T; ++t) {
        for (int c = 0; c < d; ++c) {
          const double want = expected(q, k, v, w, b, t, c, reach);
          if (std::abs(static_cast<double>(vy(b, t, c)) - want) > 1e-6) {
            std::printf("y[%d,%d,%d] is %.9g, expected %.9g\n", b, t, c, static_cast<double>(vy(b, t, c)), want);
            return 1;
          }
        }
      }
    }
  }
  if (!backward_is_right()) return 1;
  std::printf("installed package: ok (%s)\n", aft::build_info());
  return 0;
}
