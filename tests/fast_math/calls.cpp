// SPDX-License-Identifier: Apache-2.0
// Prints the bits of a few results. They must not depend on which flags of fast mathematics the file is compiled with,
// nor on what it includes before the library.
#if defined(INTRINSICS_FIRST) && defined(__SSE__)
#include <immintrin.h>
#endif
#if defined(INTRINSICS_FIRST)
#include <cmath>
#include <random>
#endif
#include <aft/aft.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

using aft::index_t;

static std::uint64_t hash = 14695981039346656037u;

/// Of every NaN one and the same: which one comes out is the processor's business. By bits, as comparisons are what
/// flags take liberties with.
static void add(const std::vector<float>& x) {
  for (const float value : x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;
    hash = (hash ^ bits) * 1099511628211u;
  }
}

int main() {
  constexpr index_t T = 42, d = 10;
  constexpr auto n = static_cast<std::size_t>(T * d);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (int special = 0; special < 4; ++special) {
    std::vector<float> q(n), k(n), v(n), y(n), lse(n), dq(n), dk(n), dv(n);
    for (std::size_t i = 0; i < n; ++i) {
      q[i] = static_cast<float>(i * 5 % 13) / 4 - 1;
      k[i] = static_cast<float>(i * 7 % 11) / 2 - 2;
      v[i] = static_cast<float>(i * 3 % 17) / 8 - 1;
    }
    std::int64_t length = T;
    if (special == 1) {  // hidden, and so without a say
      length = T - 3;
      for (std::size_t i = n - 3 * d; i < n; ++i) k[i] = v[i] = nan;
      for (std::size_t i = 0; i < 30; ++i) k[i] = -inf;
    }
    if (special == 2) v[25] = nan, v[117] = inf, q[33] = -inf;
    if (special == 3) k[5] = 300, k[6] = -300, v[9] = -0.0f, k[200] = nan;
    const auto in = [&](std::vector<float>& x) { return aft::tensor_view<const float, 3>{x.data(), {1, T, d}}; };
    const auto out = [&](std::vector<float>& x) { return aft::tensor_view<float, 3>{x.data(), {1, T, d}}; };
    for (bool causal : {false, true}) {
      const aft::tensor_view<const std::int64_t, 1> lengths{&length, {1}};
      const aft::options o{.causal = causal, .key_lengths = lengths};
      aft::simple(aft::cpu{1}, in(q), in(k), in(v), out(y),
                  aft::options{.causal = causal, .key_lengths = lengths, .lse = out(lse)});
      aft::simple_backward(aft::cpu{1}, in(q), in(k), in(v), in(q), out(dq), out(dk), out(dv), o);
      for (const auto* x : {&y, &lse, &dq, &dk, &dv}) add(*x);
#if defined(ALL_CALLS)
      std::vector<float> w(static_cast<std::size_t>(T * T)), dw(w.size()), r(7), dr(7);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = i % 23 == 0 ? -inf : static_cast<float>(i % 19) / 6 - 1;
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<float>(i) / 3 - 1;
      const aft::dense_bias bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
      const aft::dense_bias dbias{aft::tensor_view<float, 2>{dw.data(), {T, T}}};
      const aft::tensor_view<const float, 2> filter{r.data(), {1, 7}};
      aft::full(aft::cpu{1}, in(q), in(k), in(v), bias, out(y), o);
      add(y);
      aft::full_backward(aft::cpu{1}, in(q), in(k), in(v), bias, in(q), out(dq), out(dk), out(dv), dbias, o);
      for (const auto* x : {&dq, &dk, &dv, &dw}) add(*x);
      aft::local(aft::cpu{1}, in(q), in(k), in(v), bias, aft::window{4, 2}, out(y), o);
      add(y);
      aft::local_backward(aft::cpu{1}, in(q), in(k), in(v), bias, aft::window{4, 2}, in(q), out(dq), out(dk), out(dv),
                          dbias, o);
      for (const auto* x : {&dq, &dk, &dv, &dw}) add(*x);
      aft::conv(aft::cpu{1}, in(q), in(k), in(v), filter, out(y), o);
      add(y);
      aft::conv_backward(aft::cpu{1}, in(q), in(k), in(v), filter, in(q), out(dq), out(dk), out(dv),
                         aft::tensor_view<float, 2>{dr.data(), {1, 7}}, o);
      for (const auto* x : {&dq, &dk, &dv, &dr}) add(*x);
#endif
    }
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(hash));
}
