// SPDX-License-Identifier: Apache-2.0
// aft::conv_backward with an aft::sparse_filter against the reference in long double, by the rule of tolerance.hpp.
#include "sparse_call.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace {

using namespace aft::test::sparse;
using aft::index_t;
using aft::tensor_view;
using aft::test::any_executor;
using aft::test::default_executor;

template <class T>
struct written_gradients {
  numbers<T> dq, dk, dv;
  numbers<aft::compute_t<T>> dvalues;
};

/// What the call writes to memory that was not 0; of values to a view, or to a sparse filter of it.
template <class T, std::size_t Axes>
written_gradients<T> run_call(const random_call<T, Axes>& c, const numbers<T>& dy,
                              const any_executor& exec = default_executor(), bool as_filter = false) {
  using C = aft::compute_t<T>;
  written_gradients<T> g{numbers<T>(c.q.size(), number<T>(42)), numbers<T>(c.k.size(), number<T>(42)),
                         numbers<T>(c.v.size(), number<T>(42)), numbers<C>(c.values.size(), C(42))};
  const auto view = [&](numbers<T>& x, const std::array<index_t, Axes>& positions, index_t channels) {
    return tensor_view<T, Axes + 2>{x.data(), c.shape(positions, channels)};
  };
  const tensor_view<C, 2> dvalues{g.dvalues.data(), {c.H, c.m}};
  const auto call = [&](const auto& dfilter) {
    call_conv_backward(exec, c.query_view(c.q), c.key_view(), c.value_view(), c.filter(), c.query_view(dy),
                       view(g.dq, c.queries, c.d), view(g.dk, c.grid, c.hk), view(g.dv, c.grid, c.d), dfilter, c.o);
  };
  if (as_filter) {
    call(aft::sparse_filter{c.filter().taps, dvalues});
  } else {
    call(dvalues);
  }
  return g;
}

template <class T, std::size_t Axes>
numbers<T> draw_dy(const random_call<T, Axes>& c, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  numbers<T> dy;
  for (std::size_t i = 0; i < c.q.size(); ++i) dy.push_back(number<T>(normal(rng)));
  return dy;
}

/// With `saved`, lse and average of a forward call are given: each was rounded once, as a factor of every weight and in
/// every difference from an average.
template <class T, std::size_t Axes>
void check(random_call<T, Axes> c, unsigned seed, bool saved = false) {
  using C = aft::compute_t<T>;
  const auto dy = draw_dy(c, seed);
  const index_t rows = c.B * c.product(c.queries);
  numbers<C> lse(static_cast<std::size_t>(rows * c.hk)), average(c.q.size());
  long double given_error = 0;
  if (saved) {
    numbers<T> y(c.q.size());
    c.o.lse = tensor_view<C, Axes + 2>{lse.data(), c.shape(c.queries, c.hk)};
    c.o.average = tensor_view<C, Axes + 2>{average.data(), c.shape(c.queries, c.d)};
    call_conv(default_executor(), c.query_view(c.q), c.key_view(), c.value_view(), c.filter(),
              tensor_view<T, Axes + 2>{y.data(), c.shape(c.queries, c.d)}, c.o);
    long double most = 1;
    for (C x : lse)
      if (std::isfinite(x)) most = std::max<long double>(most, std::abs(x));
    given_error = std::expm1(aft::test::ulp(aft::dtype_of<C>, most) / 2) + aft::test::ulp(aft::dtype_of<C>, 1) / 2;
  }
  const auto got = run_call(c, dy);
  if (aft::test::watched()) return;  // numbers are other trees' matter
  const auto reference = [&]<class Real>(std::type_identity<Real>) {
    return aft::reference::sparse_conv_backward<Real>(c.query_view(c.q), c.key_view(), c.value_view(), c.filter(),
                                                      c.query_view(dy), c.o);
  };
  const auto oracle = reference(std::type_identity<long double>{});
  const auto naive = reference(std::type_identity<C>{});
  const index_t Tq = c.product(c.queries);
  const auto compare = [&](const char* name, const auto& written, auto tensor, long double row, index_t count) {
    CAPTURE(name);
    const std::vector<long double> values = widen(written), plain = widen(naive.*tensor.second);
    std::vector<long double> scale = oracle.terms.*tensor.first;
    long double most = row;
    for (long double x : scale)
      if (std::isfinite(x)) most = std::max(most, x);
    scale.assign(scale.size(), most);
    using stored = typename std::decay_t<decltype(written)>::value_type;
    aft::test::comparison one{&values,          &(oracle.*tensor.first), &plain, &(oracle.terms.*tensor.first), scale,
                              aft::dtype_of<C>, aft::dtype_of<stored>};
    one.count = static_cast<long double>(count);
    one.given_error = given_error;
    CHECK(aft::test::first_mismatch(one) == "");
  };
  using exact = aft::reference::gradients<long double>;
  using same = aft::reference::gradients<C>;
  compare("dq", got.dq, std::pair{&exact::dq, &same::dq}, 0, 1);
  compare("dk", got.dk, std::pair{&exact::dk, &same::dk}, oracle.row_dx, Tq * (c.d / c.hk));
  compare("dv", got.dv, std::pair{&exact::dv, &same::dv}, oracle.row_dv, Tq);
  compare("dvalues", got.dvalues, std::pair{&exact::dr, &same::dr}, oracle.row_dx, c.B * c.d / c.H * Tq);
}

}  // namespace

TEST_CASE_TEMPLATE("sparse gradients: sequences, planes and boxes, heads, key channels, taps beyond the grid", T, float,
                   double, aft::half, aft::bfloat16) {
  unsigned seed = 0;
  for (index_t m : {0, 1, 3})
    for (const auto& [d, hk, H] : {std::array<index_t, 3>{6, 6, 6}, {6, 3, 3}, {6, 2, 1}, {20, 20, 4}})
      for (index_t reach : {2, 7}) {
        const auto try_grid = [&]<std::size_t Axes>(random_call<T, Axes> c, double scale, double value_scale) {
          c.o.outside = reach == 2 ? aft::outside::zero_bias : aft::outside::excluded;
          c.o.arithmetic = aft::arithmetic::full;
          c.draw(++seed, scale, value_scale, reach);
          check(c, seed);
        };
        try_grid(random_call<T, 1>{.grid = {9}, .d = d, .hk = hk, .H = H, .m = m}, 1, 1);
        // Storage types differ in how numbers are read, whatever the grid.
        if constexpr (sizeof(T) > 2) {
          try_grid(random_call<T, 2>{.grid = {1 + m, 5}, .d = d, .hk = hk, .H = H, .m = m}, 2, 2);
          try_grid(random_call<T, 3>{.B = 1, .grid = {2, 3, 3}, .d = d, .hk = hk, .H = H, .m = m}, 1, 3);
        }
      }
}

TEST_CASE_TEMPLATE("sparse gradients: causal sequences, other numbers of queries, positions far behind the keys", T,
                   float, double) {
  unsigned seed = 100;
  for (const auto& [tq, tk, first] : {std::array<index_t, 3>{9, 9, 0},
                                      {3, 9, 6},
                                      {12, 7, 0},
                                      {5, 9, 2},
                                      {4, 6, 5},
                                      {4, 6, 6},
                                      {4, 6, 9},
                                      {4, 6, index_t{1} << 40}})
    for (bool causal : {false, true}) {
      random_call<T, 1> c{.queries = {tq}, .grid = {tk}, .d = 4, .hk = 4, .H = 4, .m = 2};
      c.o.causal = causal;
      c.o.first_query = first;
      c.draw(++seed, 2, 2, 5);
      // int32 holds no offset of a trillion, so from there only 64-bit taps would lead back: none does, and all is 0.
      if (first >= tk && first < 100)
        for (std::size_t i = 0; i < c.taps.size(); i += 2) c.taps[i] -= static_cast<std::int32_t>(first);
      check(c, seed);
    }
}

TEST_CASE_TEMPLATE("sparse gradients: several chunks of a scan, and more columns than a warp has lanes", T, float,
                   double) {
  unsigned seed = 150;
  for (const auto& [tq, tk, first] : {std::array<index_t, 3>{100, 100, 0}, {70, 130, 60}, {100, 70, 0}})
    for (bool causal : {false, true})
      for (const auto& [d, hk, H] : {std::array<index_t, 3>{20, 20, 2}, {20, 5, 20}}) {
        random_call<T, 1> c{.queries = {tq}, .grid = {tk}, .d = d, .hk = hk, .H = H, .m = 3};
        c.o.causal = causal;
        c.o.first_query = first;
        c.draw(++seed, 2, 2, 60);
        check(c, seed);
      }
}

TEST_CASE_TEMPLATE("sparse gradients: gates, masks and lengths", T, float, double) {
  unsigned seed = 200;
  for (auto g : {aft::gate::none, aft::gate::sigmoid, aft::gate::silu})
    for (bool causal : {false, true}) {
      random_call<T, 1> c{.grid = {10}, .d = 4, .hk = 2, .H = 2, .m = 2};
      c.o.gate_fn = g;
      c.o.causal = causal;
      c.draw(++seed, 2, 2);
      const numbers<std::int32_t> lengths{7, 0}, rows{10, 4};
      c.o.key_lengths = tensor_view<const std::int32_t, 1>{lengths.data(), {2}};
      check(c, seed);
      check(c, seed, true);
      c.o.query_lengths = tensor_view<const std::int32_t, 1>{rows.data(), {2}};
      check(c, seed);
      numbers<std::uint8_t> keys(10, 1), pairs(100, 1);
      keys[2] = keys[9] = 0;
      for (std::size_t i = 0; i < pairs.size(); i += 3) pairs[i] = 0;
      c.o.mask = tensor_view<const std::uint8_t, 1>{keys.data(), {10}};
      check(c, seed);
      c.o.mask = tensor_view<const std::uint8_t, 2>{pairs.data(), {10, 10}};
      check(c, seed);
    }
}

TEST_CASE_TEMPLATE("sparse gradients: values and keys of any size", T, float, double) {
  unsigned seed = 300;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (double value : {-1e-3, -20.0, -1e4, -infinity, 30.0, 1e4})
    for (double peak : {0.0, 60.0, 3000.0})
      for (bool causal : {false, true}) {
        random_call<T, 1> c{.B = 1, .grid = {12}, .d = 3, .hk = 3, .H = 3, .m = 2};
        c.o.causal = causal;
        c.draw(++seed, 1, 1, 3);
        for (std::size_t i = 0; i < c.values.size(); i += 2) c.values[i] = static_cast<aft::compute_t<T>>(value);
        for (std::size_t i : {7u, 15u}) c.k[i] = number<T>(peak);
        CAPTURE(value);
        CAPTURE(peak);
        CAPTURE(causal);
        check(c, seed);
      }
}

TEST_CASE("sparse gradients: any number of threads, packed sequences, as a filter, in part") {
  random_call<float, 1> c{.B = 3, .grid = {14}, .d = 70, .hk = 70, .H = 35, .m = 2};
  c.o.causal = true;
  c.draw(1, 2, 2, 9);
  const auto dy = draw_dy(c, 2);
  const auto want = run_call(c, dy);
  bool as_filter = false;
  for (const any_executor& exec : aft::test::equivalent_executors()) {
    const auto again = run_call(c, dy, exec, as_filter = !as_filter);
    CHECK(again.dk == want.dk);
    CHECK(again.dvalues == want.dvalues);
  }
  {
    numbers<float> dv(want.dv.size());
    const auto one = tensor_view<float, 3>{dv.data(), {3, 14, 70}};
    call_conv_backward(default_executor(), c.query_view(c.q), c.key_view(), c.value_view(), c.filter(),
                       c.query_view(dy), aft::no_grad, aft::no_grad, one, aft::no_grad, c.o);
    CHECK(dv == want.dv);
  }
  // Sequences of 9 and 5 rows one behind the other.
  random_call<float, 1> both = c, first = c, second = c;
  both.B = first.B = second.B = 1;
  first.grid = first.queries = {9};
  second.grid = second.queries = {5};
  const auto cut = [](numbers<float>& x, index_t from, index_t rows) {
    x.assign(x.begin() + from * 70, x.begin() + (from + rows) * 70);
  };
  auto all_dy = dy, first_dy = dy, second_dy = dy;
  for (auto* x : {&both.q, &both.k, &both.v, &all_dy}) cut(*x, 0, 14);
  for (auto* x : {&first.q, &first.k, &first.v, &first_dy}) cut(*x, 0, 9);
  for (auto* x : {&second.q, &second.k, &second.v, &second_dy}) cut(*x, 9, 5);
  const std::vector<std::int32_t> offsets{0, 9, 14};
  for (bool causal : {true, false})
    for (index_t position : {index_t{0}, index_t{3}, index_t{50}}) {
      for (auto* x : {&both, &first, &second}) x->o.causal = causal, x->o.first_query = position;
      both.o.query_offsets = tensor_view<const std::int32_t, 1>{offsets.data(), {3}};
      const auto packed = run_call(both, all_dy), a = run_call(first, first_dy), b = run_call(second, second_dy);
      for (const auto part :
           {&written_gradients<float>::dq, &written_gradients<float>::dk, &written_gradients<float>::dv}) {
        CHECK(std::equal((a.*part).begin(), (a.*part).end(), (packed.*part).begin()));
        CHECK(std::equal((b.*part).begin(), (b.*part).end(), (packed.*part).begin() + 9 * 70));
      }
    }
}

TEST_CASE_TEMPLATE("sparse gradients: packed sequences have the bits of calls, with taps beyond the shorter ones", T,
                   float, double, aft::half, aft::bfloat16) {
  using C = aft::compute_t<T>;
  const std::vector<std::int32_t> offsets{0, 2, 11, 12, 12, 26};
  unsigned seed = 400;
  for (bool causal : {true, false})
    for (index_t position : {index_t{0}, index_t{3}, index_t{20}}) {
      random_call<T, 1> c{.B = 1, .grid = {26}, .d = 6, .hk = 3, .H = 3, .m = 4};
      c.o.causal = causal;
      c.o.first_query = position;
      c.draw(++seed, 2, 2, 12);
      c.taps[0] = -5;
      const auto dy = draw_dy(c, seed);
      random_call<T, 1> packed = c;
      packed.o.query_offsets = tensor_view<const std::int32_t, 1>{offsets.data(), {6}};
      const auto all = run_call(packed, dy);
      std::vector<long double> sums(c.values.size()), sizes(c.values.size());
      for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
        const index_t first = offsets[n], rows = offsets[n + 1] - first;
        random_call<T, 1> one = c;
        one.grid = one.queries = {rows};
        const auto cut = [&](numbers<T>& x, const numbers<T>& from, index_t channels) {
          x.assign(from.begin() + first * channels, from.begin() + (first + rows) * channels);
        };
        numbers<T> own_dy;
        cut(one.q, c.q, c.d), cut(one.k, c.k, c.hk), cut(one.v, c.v, c.d), cut(own_dy, dy, c.d);
        const auto alone = run_call(one, own_dy);
        const auto same = [&](const numbers<T>& x, const numbers<T>& of, index_t channels) {
          const T* const from = of.data() + first * channels;
          return x.empty() || std::memcmp(x.data(), from, x.size() * sizeof(T)) == 0;
        };
        CAPTURE(n);
        CHECK(same(alone.dq, all.dq, c.d));
        CHECK(same(alone.dk, all.dk, c.hk));
        CHECK(same(alone.dv, all.dv, c.d));
        for (std::size_t i = 0; i < sums.size(); ++i) {
          sums[i] += static_cast<long double>(alone.dvalues[i]);
          sizes[i] += std::abs(static_cast<long double>(alone.dvalues[i]));
        }
      }
      if (aft::test::watched()) continue;
      // Each of the five was rounded before and is rounded as a sum.
      for (std::size_t i = 0; i < sums.size(); ++i)
        CHECK(std::abs(sums[i] - static_cast<long double>(all.dvalues[i])) <=
              5 * sizes[i] * static_cast<long double>(std::numeric_limits<C>::epsilon()));
    }
}

TEST_CASE("sparse gradients: packed sequences without a pair have gradients of 0") {
  const std::vector<std::int32_t> none{0, 0, 0}, some{0, 3, 4};
  const auto view = [](const std::vector<std::int32_t>& of) {
    return tensor_view<const std::int32_t, 1>{of.data(), {3}};
  };
  for (const auto& [queries, keys] : {std::pair{&none, &none}, {&none, &some}, {&some, &none}}) {
    random_call<float, 1> c{.B = 1, .grid = {4}, .d = 4, .hk = 4, .H = 2, .m = 2};
    c.draw(450);
    c.queries = {queries->back()};
    c.grid = {keys->back()};
    c.q.resize(static_cast<std::size_t>(c.queries[0] * c.d));
    c.k.resize(static_cast<std::size_t>(c.grid[0] * c.hk));
    c.v.resize(c.k.size());
    c.o.query_offsets = view(*queries);
    c.o.key_offsets = view(*keys);
    const auto got = run_call(c, c.q);
    CHECK(got.dvalues == numbers<float>(4));
    CHECK(got.dq == numbers<float>(c.q.size()));
    CHECK(got.dk == numbers<float>(c.k.size()));
    CHECK(got.dv == numbers<float>(c.v.size()));
    // So has a dense filter.
    numbers<float> dfilter(6, 42);
    call_conv_backward(default_executor(), c.query_view(c.q), c.key_view(), c.value_view(),
                       tensor_view<const float, 2>{c.values.data(), {2, 2}}, c.query_view(c.q), aft::no_grad,
                       aft::no_grad, aft::no_grad, tensor_view<float, 2>{dfilter.data(), {2, 2}}, c.o);
    CHECK(dfilter == numbers<float>{0, 0, 0, 0, 42, 42});
  }
}

TEST_CASE_TEMPLATE("sparse gradients: of values with a stride of 0 over heads, over taps, over both the sum", T, float,
                   double) {
  unsigned seed = 500;
  for (const auto& over : {std::array{true, false}, {false, true}, {true, true}})
    for (bool causal : {false, true}) {
      const bool heads = over[0], taps = over[1];
      random_call<T, 1> c{.grid = {9}, .d = 6, .hk = 6, .H = 3, .m = 4};
      c.o.causal = causal;
      c.draw(++seed, 2, 2, 7);
      const auto dy = draw_dy(c, seed);
      const std::array<index_t, 2> shape{heads ? 1 : c.H, taps ? 1 : c.m};
      const aft::sparse_filter filter{
          c.filter().taps,
          tensor_view<const T, 2>{c.values.data(), {c.H, c.m}, {heads ? index_t{0} : c.m, taps ? index_t{0} : 1}}};
      const auto sums = [&](const auto& each) {
        std::vector<std::decay_t<decltype(each[0])>> sum(static_cast<std::size_t>(shape[0] * shape[1]));
        for (index_t i = 0; i < c.H * c.m; ++i)
          sum[static_cast<std::size_t>((heads ? 0 : i / c.m) * shape[1] + (taps ? 0 : i % c.m))] +=
              each[static_cast<std::size_t>(i)];
        return sum;
      };
      const auto run = [&](const random_call<T, 1>& call, const std::array<index_t, 2>& out) {
        numbers<T> dvalues(static_cast<std::size_t>(out[0] * out[1]), T(42));
        call_conv_backward(default_executor(), call.query_view(call.q), call.key_view(), call.value_view(), filter,
                           call.query_view(dy), aft::no_grad, aft::no_grad, aft::no_grad,
                           tensor_view<T, 2>{dvalues.data(), out}, call.o);
        return dvalues;
      };
      const std::vector<long double> got = widen(run(c, shape));
      // Sequences of 4 and 5 rows, of both batch elements.
      random_call<T, 1> packed = c;
      packed.B = 1;
      packed.grid = packed.queries = {18};
      const std::vector<std::int32_t> offsets{0, 4, 9, 13, 18};
      packed.o.query_offsets = tensor_view<const std::int32_t, 1>{offsets.data(), {5}};
      const auto joint = widen(run(packed, shape)), apart = widen(run(packed, {c.H, c.m}));
      if (aft::test::watched()) continue;
      const auto reference = [&]<class Real>(std::type_identity<Real>) {
        return aft::reference::sparse_conv_backward<Real>(c.query_view(c.q), c.key_view(), c.value_view(), filter,
                                                          c.query_view(dy), c.o);
      };
      const auto oracle = reference(std::type_identity<long double>{});
      const auto exact = sums(oracle.dr), terms = sums(oracle.terms.dr);
      const auto plain = widen(sums(reference(std::type_identity<T>{}).dr));
      const long double most = std::max(oracle.row_dx, *std::max_element(terms.begin(), terms.end()));
      aft::test::comparison one{
          &got, &exact, &plain, &terms, std::vector(terms.size(), most), aft::dtype_of<T>, aft::dtype_of<T>};
      one.count = static_cast<long double>(c.B * c.d * 9 * (taps ? c.m : 1));
      CHECK(aft::test::first_mismatch(one) == "");
      // Sums of sums: at most as many terms as values and sequences, each rounded before.
      std::vector<long double> sizes = apart;
      for (long double& x : sizes) x = std::abs(x);
      const auto want = sums(apart), size = sums(sizes);
      const long double loose = oracle.row_dx * 18 * static_cast<long double>(c.H * c.m);
      for (std::size_t i = 0; i < want.size(); ++i)
        CHECK(std::abs(joint[i] - want[i]) <=
              (loose + size[i]) * static_cast<long double>(12 * 5 * std::numeric_limits<T>::epsilon()));
    }
}
