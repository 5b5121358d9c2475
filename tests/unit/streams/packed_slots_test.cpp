// SPDX-License-Identifier: Apache-2.0
// Packed sequences whose new positions continue slots: the bits of a call on each, biases of any kind.
#include <cmath>
#include <random>
#include <span>

#include "engines/own_engine.hpp"
#include "call/slots.hpp"
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::check_parts;
using aft::test::error_of;
using aft::test::random_floats;
using aft::test::slots;
using offsets_view = aft::tensor_view<const std::int64_t, 1>;

enum class kind { simple, banded, conv, dense, factorized, generated };

constexpr index_t d = 36, hk = 18, T = 120, N = 5, rank = 3, taps = 6;
constexpr aft::window win{9, 0};

aft::stream_spec spec_of(kind of) {
  if (of == kind::simple) return aft::stream_spec::simple<float>(d, hk);
  if (of == kind::banded) return aft::stream_spec::local<float>(d, hk, win);
  if (of == kind::conv) return aft::stream_spec::conv<float>(d, hk, taps);
  return aft::stream_spec::full<float>(d, hk, T);
}

/// What a slot's owner sees of calls on rows [a, b) of packed tensors.
struct tensors {
  std::vector<float> q, k, v, y, lse;

  tensors(index_t rows, unsigned seed)
      : q(random_floats(rows * d, seed)),
        k(random_floats(rows * hk, seed + 1)),
        v(random_floats(rows * d, seed + 2)),
        y(static_cast<std::size_t>(rows * d)),
        lse(static_cast<std::size_t>(rows * hk)) {}

  void call(kind of, index_t a, index_t b, int threads, aft::options opt) {
    static const std::vector<float> w = random_floats(T * T, 1), u = random_floats(T * rank, 2),
                                    z = random_floats(T * rank, 3), band = random_floats(T * win.width(), 4),
                                    filter = random_floats(2 * taps, 5);
    const auto in = [&](const std::vector<float>& x, index_t channels) {
      return aft::tensor_view<const float, 2>{x.data() + a * channels, {b - a, channels}};
    };
    const aft::tensor_view<float, 2> out{y.data() + a * d, {b - a, d}};
    opt.causal = true;
    opt.lse = aft::tensor_view<float, 3>{lse.data() + a * hk, {1, b - a, hk}};
    const aft::cpu exec{.threads = threads};
    const auto of_two = [](const std::vector<float>& x, index_t rows, index_t columns) {
      return aft::tensor_view<const float, 2>{x.data(), {rows, columns}};
    };
    // A pair that comes later than its query is asked for by nobody.
    const auto f = [](index_t, index_t h, index_t t, index_t s0, std::span<float> row) noexcept {
      for (std::size_t i = 0; i < row.size(); ++i) {
        const index_t s = s0 + static_cast<index_t>(i);
        row[i] = s > t ? std::nanf("") : std::sin(static_cast<float>(3 * t + 7 * s + h));
      }
    };
    switch (of) {
      case kind::simple: return aft::simple(exec, in(q, d), in(k, hk), in(v, d), out, opt);
      case kind::banded:
        return aft::local(exec, in(q, d), in(k, hk), in(v, d), aft::banded_bias{of_two(band, T, win.width())}, win, out,
                          opt);
      case kind::conv: return aft::conv(exec, in(q, d), in(k, hk), in(v, d), of_two(filter, 2, taps), out, opt);
      case kind::dense:
        return aft::full(exec, in(q, d), in(k, hk), in(v, d), aft::dense_bias{of_two(w, T, T)}, out, opt);
      case kind::factorized:
        return aft::full(exec, in(q, d), in(k, hk), in(v, d),
                         aft::factorized_bias{of_two(u, T, rank), of_two(z, T, rank)}, out, opt);
      case kind::generated: return aft::full(exec, in(q, d), in(k, hk), in(v, d), aft::generated_bias{2, f}, out, opt);
    }
  }
};

}  // namespace

TEST_CASE("streams: packed sequences continue their slots with the bits of a call on each") {
  for (const kind of : {kind::simple, kind::banded, kind::conv, kind::dense, kind::factorized, kind::generated}) {
    CAPTURE(static_cast<int>(of));
    const slots packed(spec_of(of), N), apart(spec_of(of), N);
    const std::vector<std::int32_t> ids{3, 0, -1, 4, 1};
    std::mt19937 random(11);
    for (unsigned round = 0; round < 4; ++round) {
      std::vector<std::int64_t> offsets{0};
      for (index_t n = 0; n < N; ++n) offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 17));
      tensors x(offsets.back(), 20 + round);
      x.call(of, 0, offsets.back(), 1 + static_cast<int>(round) % 3,
             {.stream = packed.view(),
              .slot_ids = aft::tensor_view<const std::int32_t, 1>{ids.data(), {N}},
              .query_offsets = offsets_view{offsets.data(), {N + 1}}});
      const std::vector<float> y = x.y, lse = x.lse;
      std::fill(x.y.begin(), x.y.end(), 0.0F);
      std::fill(x.lse.begin(), x.lse.end(), 0.0F);
      for (std::size_t n = 0; n < N; ++n) {
        if (ids[n] < 0) continue;
        x.call(of, offsets[n], offsets[n + 1], 1,
               {.stream = apart.view(), .slot_ids = aft::tensor_view<const std::int32_t, 1>{&ids[n], {1}}});
      }
      CHECK(x.y == y);
      CHECK(x.lse == lse);
      for (index_t slot = 0; slot < N; ++slot) CHECK(packed.position(slot) == apart.position(slot));
    }
  }
}

TEST_CASE("streams: offsets that do not fit the slots") {
  const slots own(spec_of(kind::simple), N);
  tensors x(9, 1);
  const std::vector<float> before = x.y;
  const auto refused = [&](const aft::options& opt, const std::initializer_list<const char*>& parts) {
    check_parts(error_of([&] { x.call(kind::simple, 0, 9, 1, opt); }), parts);
    CHECK(x.y == before);
    for (index_t slot = 0; slot < N; ++slot) CHECK(own.position(slot) == 0);
  };
  const std::vector<std::int64_t> offsets{0, 4, 9}, other{0, 5, 9}, many{0, 1, 2, 3, 4, 5, 9};
  const std::vector<std::int32_t> ids{0, 1, 2};
  const offsets_view two{offsets.data(), {3}};
  refused({.stream = own.view(), .query_offsets = two, .key_offsets = offsets_view{other.data(), {3}}},
          {"'key_offsets'", "entry 1 to be 4 as in 'query_offsets' beside a stream", "got 5"});
  refused({.stream = own.view(),
           .slot_ids = aft::tensor_view<const std::int32_t, 1>{ids.data(), {3}},
           .query_offsets = two},
          {"'slot_ids'", "extent 0 (N) to be 2", "got 3"});
  refused({.stream = own.view(), .query_offsets = offsets_view{many.data(), {7}}},
          {"'stream'", "at least N = 6 slots", "got 5 slots"});
}
