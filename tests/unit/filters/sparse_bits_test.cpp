// SPDX-License-Identifier: Apache-2.0
// aft::conv with an aft::sparse_filter against itself: on other threads, in other batches and places the same bits.
#include "sparse_call.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>

namespace {

using namespace aft::test::sparse;
using aft::index_t;
using aft::tensor_view;
using aft::test::any_executor;
using aft::test::default_executor;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// y of a call without lse and average.
template <class T, std::size_t Axes>
numbers<T> run_call(const random_call<T, Axes>& c, const any_executor& exec = default_executor()) {
  numbers<T> y(static_cast<std::size_t>(c.B * c.product(c.queries) * c.d));
  call_conv(exec, c.query_view(c.q), c.key_view(), c.value_view(), c.filter(),
            tensor_view<T, Axes + 2>{y.data(), c.shape(c.queries, c.d)}, c.o);
  return y;
}

}  // namespace

TEST_CASE("the same bits on any number of threads, in any batch, and before keys that come later") {
  for (bool causal : {false, true}) {
    random_call<float, 1> c{.B = 5, .grid = {60}, .d = 150, .hk = 150, .H = 75, .m = 3};
    c.o.causal = causal;
    c.draw(1, 3, 3, 9);
    const auto y = run_call(c);
    for (const any_executor& exec : aft::test::equivalent_executors()) CHECK(run_call(c, exec) == y);
    random_call<float, 1> last = c;
    last.B = 1;
    for (auto* x : {&last.q, &last.k, &last.v}) x->erase(x->begin(), x->end() - 60 * 150);
    const auto alone = run_call(last);
    CHECK(std::equal(alone.begin(), alone.end(), y.end() - 60 * 150));
    if (!causal) continue;
    for (std::size_t i = 40 * 150; i < 60 * 150; ++i) last.k[i] *= 20, last.v[i] = std::nanf("");
    const auto changed = run_call(last);
    CHECK(std::equal(changed.begin(), changed.begin() + 40 * 150, alone.begin()));
  }
}

TEST_CASE("results that no cache keeps have the bits of small ones") {
  // 17 MB of y in whole lines; heads within a vector, beyond it and of one channel.
  for (const auto& [d, H] : {std::array<index_t, 2>{448, 32}, {448, 448}, {448, 2}}) {
    // The emulated device has no caches: there a batch of any size will do.
    random_call<float, 2> c{.B = aft::test::on_device() ? 2 : 46, .grid = {14, 15}, .d = d, .hk = d, .H = H, .m = 1};
    c.draw(7, 1, 1, 9);
    const auto n = static_cast<std::size_t>(14 * 15 * d), all = static_cast<std::size_t>(c.B) * n;
    REQUIRE((aft::test::on_device() || 4 * all >= std::size_t{16} << 20));
    numbers<float> memory(all + 16);
    void* start = memory.data();
    std::size_t room = memory.size() * sizeof(float);
    auto* const y = static_cast<float*>(std::align(64, all * sizeof(float), start, room));
    any_executor exec = default_executor();
    if (auto* const host = std::get_if<aft::cpu>(&exec)) host->threads = 2;
    call_conv(exec, c.query_view(c.q), c.key_view(), c.value_view(), c.filter(),
              tensor_view<float, 4>{y, c.shape(c.queries, d)});
    random_call<float, 2> last = c;
    last.B = 1;
    for (auto* x : {&last.q, &last.k, &last.v}) x->erase(x->begin(), x->begin() + static_cast<std::ptrdiff_t>(all - n));
    const auto alone = run_call(last);
    CHECK(std::equal(alone.begin(), alone.end(), y + all - n));
  }
}

TEST_CASE_TEMPLATE("results alone have the bits of those beside averages, in the place of q too", T, float, double) {
  unsigned seed = 600;
  // Heads of whole vectors, of parts of one, of several, and of one channel.
  for (const auto& shape : {std::array<index_t, 2>{64, 1}, {64, 4}, {64, 16}, {192, 16}, {64, 64}, {100, 10}})
    for (index_t m : {0, 1, 3}) {
      const auto d = shape[0], H = shape[1];
      random_call<T, 2> c{.grid = {5, 7}, .d = d, .hk = d, .H = H, .m = m};
      c.draw(++seed, 1, 2, 3);
      // Keys that have most of a row's mass, which taps take away; queries beyond the range of a gate; hidden keys.
      for (std::size_t i = 5; i < c.k.size(); i += 37) c.k[i] = number<T>(7);
      for (std::size_t i = 3; i < c.q.size(); i += 151) c.q[i] = number<T>(i % 2 == 0 ? 90 : -90);
      for (std::size_t i = 11; i < c.k.size(); i += 463)
        c.k[i] = number<T>(-infinity), c.v[i] = number<T>(std::nan(""));
      CAPTURE(d);
      CAPTURE(H);
      CAPTURE(m);
      const auto alone = run_call(c);
      random_call<T, 2> beside = c;
      numbers<T> average(alone.size());
      beside.o.average = tensor_view<T, 4>{average.data(), c.shape(c.queries, d)};
      CHECK(run_call(beside) == alone);
      numbers<T> y = c.q;
      const tensor_view<T, 4> place{y.data(), c.shape(c.queries, d)};
      call_conv(default_executor(), tensor_view<const T, 4>{y.data(), c.shape(c.queries, d)}, c.key_view(),
                c.value_view(), c.filter(), place, c.o);
      CHECK(y == alone);
    }
}

TEST_CASE("any strides and integers of either width, y in the place of q, packed sequences") {
  random_call<float, 2> c{.grid = {4, 3}, .d = 6, .hk = 3, .H = 3, .m = 2};
  c.draw(7, 1, 2);
  const auto want = run_call(c);
  // Channels before positions, which are transposed, and taps in columns.
  numbers<float> q(c.q.size()), k(c.k.size()), v(c.v.size());
  const auto place = [](numbers<float>& memory, index_t channels) {
    return tensor_view<float, 4>{memory.data(), {2, 4, 3, channels}, {12 * channels, 1, 4, 12}};
  };
  const auto copy = [](const auto& from, const auto& to) {
    for (index_t b = 0; b < 2; ++b)
      for (index_t i = 0; i < 4; ++i)
        for (index_t j = 0; j < 3; ++j)
          for (index_t x = 0; x < from.extent(3); ++x) {
            const index_t at = b * to.stride(0) + i * to.stride(1) + j * to.stride(2) + x * to.stride(3);
            to.data()[at] = from.data()[((b * 4 + i) * 3 + j) * from.extent(3) + x];
          }
  };
  copy(c.query_view(c.q), place(q, 6));
  copy(c.key_view(), place(k, 3));
  copy(c.value_view(), place(v, 6));
  numbers<std::int64_t> taps;
  for (index_t a = 0; a < 2; ++a)
    for (index_t i = 0; i < 6; ++i) taps.push_back(c.taps[static_cast<std::size_t>(2 * i + a)]);
  const aft::sparse_filter filter{tensor_view<const std::int64_t, 3>{taps.data(), {3, 2, 2}, {2, 1, 6}},
                                  tensor_view<const float, 2>{c.values.data(), {3, 2}}};
  const tensor_view<const float, 4> in = place(q, 6), keys = place(k, 3), values = place(v, 6);
  call_conv(default_executor(), in, keys, values, filter, place(q, 6));
  for (index_t b = 0; b < 2; ++b)
    for (index_t t = 0; t < 12; ++t)
      for (index_t x = 0; x < 6; ++x)
        CHECK(q[static_cast<std::size_t>(b * 72 + t / 3 + t % 3 * 4 + x * 12)] ==
              want[static_cast<std::size_t>((b * 12 + t) * 6 + x)]);

  random_call<float, 1> one{.B = 1, .grid = {9}, .d = 4, .hk = 4, .H = 2, .m = 2};
  one.o.causal = true;
  one.draw(9, 1, 2);
  random_call<float, 1> two = one;
  two.grid = two.queries = {14};
  two.draw(9, 1, 2);
  two.values = one.values;
  two.taps = one.taps;
  // Sequences of 9 and 5.
  random_call<float, 1> second = one;
  second.grid = second.queries = {5};
  for (auto [all, first, rest] :
       {std::array{&two.q, &one.q, &second.q}, {&two.k, &one.k, &second.k}, {&two.v, &one.v, &second.v}}) {
    std::copy_n(all->begin(), 36, first->begin());
    rest->assign(all->begin() + 36, all->end());
  }
  const std::vector<std::int32_t> offsets{0, 9, 14};
  two.o.query_offsets = tensor_view<const std::int32_t, 1>{offsets.data(), {3}};
  const auto packed = run_call(two), a = run_call(one), b = run_call(second);
  CHECK(std::equal(a.begin(), a.end(), packed.begin()));
  CHECK(std::equal(b.begin(), b.end(), packed.begin() + 36));
}
