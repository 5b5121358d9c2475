// SPDX-License-Identifier: Apache-2.0
// One call of each operator with its gradients, for a version of xsimd: what of it a kernel uses compiles, and is
// right. Each result is within 8 units in the last place of the numbers that it was summed from: the part of the
// contract that needs no second evaluation. The last line is `N tensors, M wrong`.
#include <cmath>
#include <cstdio>
#include <vector>

#include <aft/aft.hpp>
#include <aft/reference/reference.hpp>

#include <support/harness/tolerance.hpp>

namespace {

using aft::index_t;

constexpr index_t B = 2, T = 19, d = 21, H = 3, taps = 5, before = 3, after = 2;
constexpr auto count = static_cast<std::size_t>(B * T * d);

int tensors = 0, wrong = 0;

void judge(const char* what, aft::dtype type, const std::vector<long double>& got,
           const std::vector<long double>& oracle, const std::vector<long double>& sizes) {
  long double size = 0, worst = 0;
  for (long double x : sizes) size = std::fmax(size, x);
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::fmax(worst, std::fabs(got[i] - oracle[i]));
  const long double units = worst / aft::test::ulp(type, size);
  ++tensors;
  if (got.size() == oracle.size() && size > 0 && units <= 8) return;
  ++wrong;
  std::printf("%s, %s: %.3Lg units\n", what, type == aft::dtype::f64 ? "double" : "float", units);
}

template <class C>
struct calls {
  using in = aft::tensor_view<const C, 3>;
  using out = aft::tensor_view<C, 3>;

  static std::vector<C> wave(std::size_t n, double step, double scale) {
    std::vector<C> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<C>(scale * std::sin(step * static_cast<double>(i + 1)));
    return x;
  }
  static std::vector<long double> wide(const std::vector<C>& x) { return {x.begin(), x.end()}; }
  static in rows(const std::vector<C>& x) { return in{x.data(), {B, T, d}}; }
  static out rows(std::vector<C>& x) { return out{x.data(), {B, T, d}}; }

  static constexpr aft::dtype type = sizeof(C) == 8 ? aft::dtype::f64 : aft::dtype::f32;
  std::vector<C> q = wave(count, 0.7, 2), k = wave(count, 1.3, 4), v = wave(count, 2.1, 3), dy = wave(count, 0.9, 1);
  std::vector<C> y = std::vector<C>(count), dq = y, dk = y, dv = y;

  /// run(gradients) calls the library, look() and look_back() the reference; `bias` is the gradient of what has one.
  template <class Run, class Look, class LookBack, class BiasOf>
  void compare(const char* name, std::vector<C>& bias, const Run& run, const Look& look, const LookBack& look_back,
               const BiasOf& bias_of) {
    run();
    const auto expected = look();
    judge(name, type, wide(y), expected.y, expected.largest);
    const auto slopes = look_back();
    judge(name, type, wide(dq), slopes.dq, slopes.terms.dq);
    judge(name, type, wide(dk), slopes.dk, slopes.terms.dk);
    judge(name, type, wide(dv), slopes.dv, slopes.terms.dv);
    if (!bias.empty()) judge(name, type, wide(bias), bias_of(slopes), bias_of(slopes.terms));
  }

  void all() {
    const aft::cpu exec{.threads = 1};
    const in vq = rows(q), vk = rows(k), vv = rows(v), vdy = rows(dy);
    const auto of_w = [](const auto& g) { return g.dw; };
    std::vector<C> none;
    compare(
        "simple", none,
        [&] {
          aft::simple(exec, vq, vk, vv, rows(y));
          aft::simple_backward(exec, vq, vk, vv, vdy, rows(dq), rows(dk), rows(dv));
        },
        [&] { return aft::reference::simple<long double>(vq, vk, vv); },
        [&] { return aft::reference::simple_backward<long double>(vq, vk, vv, vdy); }, of_w);

    const std::vector<C> w = wave(static_cast<std::size_t>(H * T * T), 0.37, 3);
    std::vector<C> dw(w.size());
    const aft::dense_bias dense{in{w.data(), {H, T, T}}};
    const aft::options causal{.causal = true};
    compare(
        "full", dw,
        [&] {
          aft::full(exec, vq, vk, vv, dense, rows(y), causal);
          aft::full_backward(exec, vq, vk, vv, dense, vdy, rows(dq), rows(dk), rows(dv),
                             aft::dense_bias{out{dw.data(), {H, T, T}}}, causal);
        },
        [&] { return aft::reference::full<long double>(vq, vk, vv, dense, causal); },
        [&] { return aft::reference::full_backward<long double>(vq, vk, vv, dense, vdy, causal); }, of_w);

    const aft::window window{.before = before, .after = after};
    const aft::banded_bias banded{in{w.data(), {H, T, before + after + 1}}};
    std::vector<C> dbanded(static_cast<std::size_t>(H * T * (before + after + 1)));
    compare(
        "local", dbanded,
        [&] {
          aft::local(exec, vq, vk, vv, banded, window, rows(y));
          aft::local_backward(exec, vq, vk, vv, banded, window, vdy, rows(dq), rows(dk), rows(dv),
                              aft::banded_bias{out{dbanded.data(), {H, T, before + after + 1}}});
        },
        [&] { return aft::reference::local<long double>(vq, vk, vv, banded, window); },
        [&] { return aft::reference::local_backward<long double>(vq, vk, vv, banded, window, vdy); }, of_w);

    const aft::tensor_view<const C, 2> filter{w.data(), {H, taps}};
    std::vector<C> dr(static_cast<std::size_t>(H * taps));
    compare(
        "conv", dr,
        [&] {
          aft::conv(exec, vq, vk, vv, filter, rows(y));
          aft::conv_backward(exec, vq, vk, vv, filter, vdy, rows(dq), rows(dk), rows(dv),
                             aft::tensor_view<C, 2>{dr.data(), {H, taps}});
        },
        [&] { return aft::reference::conv<long double>(vq, vk, vv, filter); },
        [&] { return aft::reference::conv_backward<long double>(vq, vk, vv, filter, vdy); },
        [](const auto& g) { return g.dr; });
  }
};

}  // namespace

int main() {
  std::printf("%s\n", aft::build_info());
  calls<float>{}.all();
  calls<double>{}.all();
  std::printf("%d tensors, %d wrong\n", tensors, wrong);
  return wrong == 0 && tensors == 2 * (4 + 3 * 5) ? 0 : 1;
}
