// SPDX-License-Identifier: Apache-2.0
// aft::attention_map and the calls that look at a filter, on the emulated device against the host, whose results have
// tests of their own. Both work in double, so what may differ is the order of sums.
#include <doctest/doctest.h>

#include "engines/engine.hpp"
#if !defined(AFT_TEST_ON_GPU)
#include <device_emulator.hpp>
#endif

#include <cmath>
#include <random>
#include <vector>

#include "call/tensor_memory.hpp"
#include "engines/own_engine.hpp"
#include "harness/tolerance.hpp"

namespace {

using aft::index_t;
using aft::tensor_view;

/// What host and device both read and write.
template <class T>
using numbers = std::vector<T, aft::test::tensor_allocator<T>>;

template <class T>
numbers<T> random_values(index_t n, unsigned seed, double scale = 1, double offset = 0) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(offset, scale);
  numbers<T> values;
  for (index_t i = 0; i < n; ++i) {
    using number = std::conditional_t<std::is_same_v<T, double>, double, float>;
    values.push_back(T(static_cast<number>(normal(rng))));
  }
  return values;
}

/// The same for a call that has no outside.
aft::options anywhere(aft::options o) {
  o.outside = aft::outside::zero_bias;
  return o;
}

/// The same memory as either space sees it.
template <class T, std::size_t Rank>
tensor_view<T, Rank, aft::device_space> on_device(const tensor_view<T, Rank>& v) {
  return {v.data(), v.extents(), v.strides()};
}

template <class T>
void expect_close(const numbers<T>& got, const numbers<T>& want, double bound) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    CAPTURE(i);
    if (!std::isfinite(w)) {
      CHECK(std::isnan(g) == std::isnan(w));
      continue;
    }
    // Two numbers so close round to neighbours at most.
    const double unit = static_cast<double>(aft::test::ulp(aft::dtype_of<T>, static_cast<long double>(w)));
    CHECK(std::abs(g - w) <= bound + (std::is_same_v<T, double> ? 0 : unit));
  }
}

/// Forward and backward of a filter with any strides, on both. `gains`: the size of these.
template <class T, std::size_t Rank>
void check_filter(const numbers<T>& memory, const tensor_view<const T, Rank>& r, double gains = 1) {
  const index_t H = r.extent(0);
  index_t taps = 1;
  for (std::size_t i = 1; i < Rank; ++i) taps *= r.extent(i);
  const auto gain = random_values<T>(H, 2, gains), shift = random_values<T>(H, 3),
             dout = random_values<T>(H * taps, 4, 1, 5);
  const tensor_view<const T, 1> gain_view(gain.data(), {H}), shift_view(shift.data(), {H});
  const tensor_view<const T, Rank> dout_view(dout.data(), r.extents());
  struct outputs {
    numbers<T> out, dr, dgain, dshift;
  };
  outputs host, device;
  for (outputs* o : {&host, &device}) {
    o->out = o->dr = numbers<T>(dout.size(), T(7));
    o->dgain = o->dshift = numbers<T>(gain.size(), T(7));
  }
  const auto filter = [&](numbers<T>& v) { return tensor_view<T, Rank>(v.data(), r.extents()); };
  const auto heads = [&](numbers<T>& v) { return tensor_view<T, 1>(v.data(), {H}); };
  aft::reparameterize(aft::cpu{}, r, gain_view, shift_view, filter(host.out));
  aft::reparameterize_backward(r, gain_view, shift_view, dout_view, filter(host.dr), heads(host.dgain),
                               heads(host.dshift));
  aft::reparameterize(aft::cuda{}, on_device(r), on_device(gain_view), on_device(shift_view),
                      on_device(filter(device.out)));
  aft::reparameterize_backward(on_device(r), on_device(gain_view), on_device(shift_view), on_device(dout_view),
                               on_device(filter(device.dr)), on_device(heads(device.dgain)),
                               on_device(heads(device.dshift)));
  aft::test::finish_device_work();
  // With n taps, |z| <= sqrt(n): mean and deviation are sums of n terms, each rounded n times at most on either side.
  const double n = static_cast<double>(taps);
  const double u = 4 * (n + 8) * 0x1p-53;
  const auto largest_of = [](const numbers<T>& v, double most) {
    for (const T& x : v) most = std::max(most, std::abs(static_cast<double>(x)));
    return most;
  };
  const double largest = largest_of(gain, largest_of(shift, largest_of(dout, 1)));
  expect_close(device.out, host.out, u * 2 * largest * std::sqrt(n));
  expect_close(device.dgain, host.dgain, u * n * largest * std::sqrt(n));
  expect_close(device.dshift, host.dshift, u * n * largest);
  // dr is gain / std times a sum: the deviation is the smallest distance that the values can have.
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < memory.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const double distance = std::abs(static_cast<double>(memory[i]) - static_cast<double>(memory[j]));
      if (distance > 0) least = std::min(least, distance);
    }
  expect_close(device.dr, host.dr, u * n * n * largest_of(dout, 1) * (largest_of(gain, 0) / (least / std::sqrt(n))));
}

template <class T>
void check_filters(double scale, double offset) {
  unsigned seed = 10;
  for (index_t taps : {1, 2, 3, 31, 32, 33, 70}) {
    const auto r = random_values<T>(3 * taps, ++seed, scale, offset);
    check_filter<T, 2>(r, {r.data(), {3, taps}});
  }
  const auto r = random_values<T>(120, ++seed, scale, offset);
  check_filter<T, 3>(r, {r.data(), {4, 5, 6}, {1, 24, 4}});
  check_filter<T, 4>(r, {r.data() + 119, {2, 3, 4, 5}, {-60, -20, -5, -1}});
}

}  // namespace

TEST_CASE("reparameterize on the device: taps from one to many, ranks, strides, types") {
  check_filters<float>(1, 0);
  check_filters<double>(1, 0);
  check_filters<aft::half>(1, 0);
  check_filters<aft::bfloat16>(1, 0);
}

TEST_CASE("reparameterize on the device: a common offset, the ends of the range, constant and broken heads") {
  check_filters<float>(0.01, 1000);
  check_filters<double>(1, 1e9);
  // At the lower end a gradient's quotient by the deviation is no number; a gain as small brings it back.
  for (double scale : {1e-310, 1e-300, 1e300}) {
    const auto r = random_values<double>(2 * 9, 3, scale);
    for (double gains : {1., scale}) check_filter<double, 2>(r, {r.data(), {2, 9}}, gains);
  }
  numbers<float> r(3 * 8, 2.5f);
  r[8] = std::numeric_limits<float>::quiet_NaN();
  r[16] = -3;
  check_filter<float, 2>(r, {r.data(), {3, 8}});
}

TEST_CASE("reparameterize on the device: gradients that are not wanted, and errors") {
  const auto r = random_values<float>(2 * 5, 1), gain = random_values<float>(2, 2), dout = random_values<float>(10, 3);
  numbers<float> all(2, 7), alone(2, 7), dr(10, 7);
  const auto view = on_device(tensor_view<const float, 2>(r.data(), {2, 5}));
  const auto up = on_device(tensor_view<const float, 2>(dout.data(), {2, 5}));
  const auto gains = on_device(tensor_view<const float, 1>(gain.data(), {2}));
  const auto heads = [](numbers<float>& v) { return on_device(tensor_view<float, 1>(v.data(), {2})); };
  numbers<float> shift(2);
  aft::reparameterize_backward(view, gains, gains, up, on_device(tensor_view<float, 2>(dr.data(), {2, 5})), heads(all),
                               heads(shift));
  aft::reparameterize_backward(view, gains, gains, up, aft::no_grad, heads(alone), aft::no_grad);
  aft::test::finish_device_work();
  CHECK(all == alone);
  const numbers<float> before = dr;
  CHECK_THROWS_AS(aft::reparameterize(view, gains, gains, on_device(tensor_view<float, 2>(dr.data(), {5, 2}, {1, 5}))),
                  aft::shape_error);
  aft::test::finish_device_work();
  CHECK(dr == before);
}

namespace {

/// The calls that make filters sparse, on both.
template <class T, std::size_t Rank>
void check_sparsity(const tensor_view<const T, Rank>& r, double scale) {
  const index_t H = r.extent(0), n = r.size();
  const auto noise = random_values<T>(n, 5), up = random_values<T>(n, 6), spread = random_values<T>(H, 7);
  const tensor_view<const T, Rank> noises(noise.data(), r.extents()), ups(up.data(), r.extents());
  const tensor_view<const T, 1> spreads(spread.data(), {H});
  struct outputs {
    numbers<T> entropy, slopes, out, dr, hard;
  };
  outputs host, device;
  const auto run = [&](outputs& o, const auto& exec, const auto& seen) {
    o.entropy = numbers<T>(spread.size(), T(7));
    o.slopes = o.out = o.dr = o.hard = numbers<T>(up.size(), T(7));
    const auto filter = [&](numbers<T>& v) { return seen(tensor_view<T, Rank>(v.data(), r.extents())); };
    aft::filter_entropy(exec, seen(r), seen(tensor_view<T, 1>(o.entropy.data(), {H})));
    aft::filter_entropy_backward(exec, seen(r), seen(spreads), filter(o.slopes));
    aft::gumbel_filter(exec, seen(r), seen(noises), 0.5, filter(o.out));
    aft::gumbel_filter_backward(exec, seen(r), seen(noises), 0.5, seen(ups), filter(o.dr));
    aft::gumbel_filter_hard(exec, seen(r), filter(o.hard));
  };
  run(host, aft::cpu{}, [](const auto& view) { return view; });
  run(device, aft::cuda{}, [](const auto& view) { return on_device(view); });
  aft::test::finish_device_work();
  // Sums of n terms in another order, exponentials of two libraries; distances of 2 (r + noise) stay below 16 scales.
  double largest = 1;
  for (const T& x : up) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (const T& x : spread) largest = std::max(largest, std::abs(static_cast<double>(x)));
  const double u = 4 * (static_cast<double>(n) + 8 + 16 * (1 + scale)) * 0x1p-53, x = 16 * (1 + scale);
  expect_close(device.entropy, host.entropy, u * x);
  expect_close(device.slopes, host.slopes, u * x * largest);
  expect_close(device.out, host.out, u * x);
  expect_close(device.dr, host.dr, u * 2 * x * largest * largest);
  expect_close(device.hard, host.hard, 0);
}

template <class T>
void check_sparsities(double scale) {
  for (index_t taps : {1, 2, 31, 33, 70}) {
    const auto r = random_values<T>(3 * taps, 20, scale);
    check_sparsity<T, 2>({r.data(), {3, taps}}, scale);
  }
  const auto r = random_values<T>(120, 21, scale);
  check_sparsity<T, 3>({r.data(), {4, 5, 6}, {1, 24, 4}}, scale);
  check_sparsity<T, 4>({r.data() + 119, {2, 3, 4, 5}, {-60, -20, -5, -1}}, scale);
}

}  // namespace

TEST_CASE("filter_entropy and gumbel_filter on the device: ranks, strides, types, equal, large and broken taps") {
  check_sparsities<float>(1);
  check_sparsities<double>(20);
  check_sparsities<aft::half>(0.1);
  check_sparsities<aft::bfloat16>(3);
  numbers<float> r(4 * 40, 2.5f);
  r[50] = std::numeric_limits<float>::quiet_NaN();
  r[90] = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 120; i < 160; ++i) r[i] = 3;
  check_sparsity<float, 2>({r.data(), {4, 40}}, 3);
  constexpr double most = std::numeric_limits<double>::max();
  const numbers<double> ends{most, -most, 0, most, most, -most, 0x1p60, 0x1p60 - 256, 0};
  numbers<double> host(3), device(3);
  const tensor_view<const double, 2> view(ends.data(), {3, 3});
  aft::filter_entropy(view, tensor_view<double, 1>(host.data(), {3}));
  aft::filter_entropy(on_device(view), on_device(tensor_view<double, 1>(device.data(), {3})));
  aft::test::finish_device_work();
  expect_close(device, host, 0x1p-50);
}

TEST_CASE("attention_map on the device: every bias, hidden pairs, heads, shared channels, strides and types") {
  constexpr index_t B = 2, T = 12, hk = 2, d = 6;
  const auto w = random_values<float>(B * 3 * T * T, 1, 3);
  for (double scale : {1., 30., 3000.})
    for (bool causal : {false, true})
      for (bool hides : {false, true})
        for (auto beyond : {aft::outside::zero_bias, aft::outside::excluded}) {
          const auto k = random_values<float>(B * T * hk, 2, scale);
          numbers<std::uint8_t> mask(B * T * T, 1);
          for (std::size_t i = 0; i < mask.size(); i += 3) mask[i] = 0;
          const numbers<std::int64_t> lengths{T - 3, T + 5};
          const tensor_view<const float, 3> keys(k.data(), {B, T, hk});
          numbers<double> want(B * T * T * d), got(want.size());
          const auto run = [&](double bound, const auto& call) {
            want.assign(want.size(), 7);
            got.assign(got.size(), 7);
            aft::options host{.causal = causal, .outside = beyond}, device = host;
            const tensor_view<const std::uint8_t, 3> m(mask.data(), {B, T, T});
            const tensor_view<const std::int64_t, 1> l(lengths.data(), {B});
            if (hides) {
              host.mask = m;
              host.key_lengths = l;
              device.mask = on_device(m);
              device.key_lengths = on_device(l);
            }
            // Channels before keys, so that no stride is 1 where one is used to it.
            const tensor_view<double, 4> a(want.data(), {B, T, T, d}, {T * T * d, T * d, 1, T});
            const tensor_view<double, 4> b(got.data(), {B, T, T, d}, {T * T * d, T * d, 1, T});
            call(host, device, a, on_device(b));
            aft::test::finish_device_work();
            expect_close(got, want, bound);
          };
          // The same operations in the same order, but for what a compiler contracts: a logit of size x and the sum of
          // T weights at most 1.
          const double u = (8 * scale + 2 * T + 8) * 0x1p-52;
          const aft::window win{.before = 3, .after = 1};
          const tensor_view<const float, 4> dense(w.data(), {B, 3, T, T});
          const tensor_view<const float, 2> band(w.data(), {T, win.width()}), taps(w.data(), {3, 5});
          const tensor_view<const float, 3> left(w.data(), {3, T, 4}), right(w.data() + 200, {3, T, 4});
          const auto dk = on_device(keys);
          run(u, [&](const auto& ho, const auto& dev, const auto& a, const auto& b) {
            aft::attention_map(keys, aft::dense_bias{dense}, a, anywhere(ho));
            aft::attention_map(aft::cuda{}, dk, aft::dense_bias{on_device(dense)}, b, anywhere(dev));
          });
          run(u, [&](const auto& ho, const auto& dev, const auto& a, const auto& b) {
            aft::attention_map(keys, aft::dense_bias{dense}, win, a, ho);
            aft::attention_map(dk, aft::dense_bias{on_device(dense)}, win, b, dev);
          });
          run(u, [&](const auto& ho, const auto& dev, const auto& a, const auto& b) {
            aft::attention_map(keys, aft::banded_bias{band}, win, a, ho);
            aft::attention_map(dk, aft::banded_bias{on_device(band)}, win, b, dev);
          });
          run(u, [&](const auto& ho, const auto& dev, const auto& a, const auto& b) {
            aft::attention_map(keys, taps, a, ho);
            aft::attention_map(dk, on_device(taps), b, dev);
          });
          run(u, [&](const auto& ho, const auto& dev, const auto& a, const auto& b) {
            aft::attention_map(keys, aft::factorized_bias{left, right}, a, anywhere(ho));
            aft::attention_map(dk, aft::factorized_bias{on_device(left), on_device(right)}, b, anywhere(dev));
          });
        }
}

TEST_CASE("attention_map on the device: products of factors that leave float's range, and sums that do not") {
  const numbers<float> u{1e20F, 1e20F}, v{1e20F, -1e20F, 1e20F, -0.999999e20F}, k{0.5F, 1};
  numbers<double> maps(4);
  const tensor_view<const float, 2> left(u.data(), {1, 2}), right(v.data(), {2, 2}), keys(k.data(), {2, 1});
  const tensor_view<double, 3> a(maps.data(), {1, 2, 1}), b(maps.data() + 2, {1, 2, 1});
  aft::attention_map(keys, aft::factorized_bias{left, right}, a);
  aft::attention_map(on_device(keys), aft::factorized_bias{on_device(left), on_device(right)}, on_device(b));
  CHECK((maps == numbers<double>{0, 1, 0, 1}));
}

TEST_CASE("attention_map on the device: queries that stand elsewhere, padding, lengths of int32, flat masks") {
  constexpr index_t B = 2, Tq = 5, Tk = 12, d = 3;
  const auto k = random_values<float>(B * Tk * d, 2), w = random_values<float>(3 * Tq * Tk, 1);
  const numbers<std::int32_t> lengths{Tk, 7}, queries{3, Tq};
  numbers<std::int8_t> mask(Tk, 1);
  mask[4] = 0;
  const tensor_view<const float, 3> keys(k.data(), {B, Tk, d}), dense(w.data(), {3, Tq, Tk});
  const tensor_view<const float, 2> taps(w.data(), {3, 5});
  const aft::window win{.before = 2, .after = 1};
  const tensor_view<const float, 2> band(w.data(), {Tq, win.width()});
  const tensor_view<const std::int32_t, 1> l(lengths.data(), {B}), n(queries.data(), {B});
  const tensor_view<const std::int8_t, 1> m(mask.data(), {Tk});
  const auto dk = on_device(keys);
  for (index_t first : {0, 4, 7, 11, 14})
    for (bool causal : {false, true})
      for (auto beyond : {aft::outside::zero_bias, aft::outside::excluded}) {
        aft::options host{.causal = causal, .outside = beyond}, device = host;
        host.first_query = device.first_query = first;
        host.mask = m;
        host.key_lengths = l;
        host.query_lengths = n;
        device.mask = on_device(m);
        device.key_lengths = on_device(l);
        device.query_lengths = on_device(n);
        const auto run = [&](const auto& call) {
          numbers<double> want(B * Tq * Tk * d, 7), got(want.size(), 7);
          const tensor_view<double, 4> a(want.data(), {B, Tq, Tk, d}), b(got.data(), {B, Tq, Tk, d});
          call(a, on_device(b));
          aft::test::finish_device_work();
          expect_close(got, want, (8 + 2 * Tk + 8) * 0x1p-52);
          for (index_t i = 3 * Tk * d; i < Tq * Tk * d; ++i) CHECK(got[static_cast<std::size_t>(i)] == 0);
        };
        run([&](const auto& a, const auto& b) {
          aft::attention_map(keys, aft::dense_bias{dense}, a, anywhere(host));
          aft::attention_map(dk, aft::dense_bias{on_device(dense)}, b, anywhere(device));
        });
        run([&](const auto& a, const auto& b) {
          aft::attention_map(keys, aft::banded_bias{band}, win, a, host);
          aft::attention_map(dk, aft::banded_bias{on_device(band)}, win, b, device);
        });
        run([&](const auto& a, const auto& b) {
          aft::attention_map(keys, taps, a, host);
          aft::attention_map(dk, on_device(taps), b, device);
        });
      }
}

TEST_CASE("attention_map on the device: grids, double data, half maps") {
  const auto k = random_values<double>(2 * 12 * 3, 5), r = random_values<double>(3 * 6, 6);
  numbers<aft::half> want(2 * 12 * 12 * 3), got(want.size());
  const tensor_view<const double, 4> keys(k.data(), {2, 3, 4, 3});
  const tensor_view<const double, 3> filter(r.data(), {3, 3, 2});
  const tensor_view<aft::half, 4> a(want.data(), {2, 12, 12, 3}), b(got.data(), {2, 12, 12, 3});
  aft::attention_map(keys, filter, a);
  aft::attention_map(on_device(keys), on_device(filter), on_device(b));
  aft::test::finish_device_work();
  expect_close(got, want, 0x1p-40);
}

#if !defined(AFT_TEST_ON_GPU)
TEST_CASE("maps on the device: a failed launch names the call") {
  namespace emulator = aft::emulator;
  numbers<float> x(12, 1), out(3 * 3 * 4);
  const tensor_view<const float, 2, aft::device_space> view(x.data(), {3, 4}), bias(x.data(), {3, 3});
  const tensor_view<const float, 1, aft::device_space> heads(x.data(), {3});
  const auto fails = [](const char* error, const auto& call) {
    emulator::fail_launch(0);
    CHECK_THROWS_WITH_AS(call(), error, aft::device_error);
    emulator::fail_launch(-1);
  };
  fails("aft::reparameterize: launching a kernel: cudaErrorLaunchFailure (unspecified launch failure)", [&] {
    aft::reparameterize(view, heads, heads, tensor_view<float, 2, aft::device_space>(out.data(), {3, 4}));
  });
  fails("aft::reparameterize_backward: launching a kernel: cudaErrorLaunchFailure (unspecified launch failure)", [&] {
    aft::reparameterize_backward(view, heads, heads, view, aft::no_grad,
                                 tensor_view<float, 1, aft::device_space>(out.data(), {3}), aft::no_grad);
  });
  fails("aft::gumbel_filter: launching a kernel: cudaErrorLaunchFailure (unspecified launch failure)", [&] {
    aft::gumbel_filter(view, view, 1, tensor_view<float, 2, aft::device_space>(out.data(), {3, 4}));
  });
  fails("aft::attention_map: launching a kernel: cudaErrorLaunchFailure (unspecified launch failure)", [&] {
    aft::attention_map(view, aft::dense_bias{bias}, tensor_view<float, 3, aft::device_space>(out.data(), {3, 3, 4}));
  });
}
#endif
