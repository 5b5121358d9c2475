// SPDX-License-Identifier: Apache-2.0
//
// Sequences of different lengths in one padded batch. What lies in the padding may be anything; each sequence gets,
// bit for bit, what it would get alone.

#include <aft/aft.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

int main() {
  const aft::index_t B = 3, T = 50, d = 16;
  const std::vector<std::int32_t> lengths{50, 17, 31};
  const auto size = static_cast<std::size_t>(B * T * d);
  std::vector<float> q(size), k(size), v(size), y(size), w(static_cast<std::size_t>(T * T));
  for (std::size_t i = 0; i < size; ++i) {
    q[i] = std::sin(0.1F * static_cast<float>(i));
    k[i] = std::cos(0.2F * static_cast<float>(i));
    v[i] = std::sin(0.3F * static_cast<float>(i));
  }
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(0.7F * static_cast<float>(i));

  const auto batch = [&](std::vector<float>& x) { return aft::as_view(x.data(), {B, T, d}); };
  // Uninitialised memory would do: NaN is the worst that it can hold.
  for (aft::index_t b = 0; b < B; ++b) {
    for (aft::index_t t = lengths[static_cast<std::size_t>(b)]; t < T; ++t) {
      for (aft::index_t c = 0; c < d; ++c)
        batch(q)(b, t, c) = batch(k)(b, t, c) = batch(v)(b, t, c) = std::numeric_limits<float>::quiet_NaN();
    }
  }

  // The same lengths twice: keys beyond them are hidden from every query, queries beyond them are padding.
  const auto len = aft::as_view(lengths.data(), {B});
  const aft::dense_bias bias{aft::as_view(w.data(), {T, T})};
  aft::full(batch(q), batch(k), batch(v), bias, batch(y),
            aft::options{.causal = true, .key_lengths = len, .query_lengths = len});

  bool same = true;
  for (aft::index_t b = 0; b < B; ++b) {
    const aft::index_t own = lengths[static_cast<std::size_t>(b)];
    std::vector<float> alone(static_cast<std::size_t>(own * d));
    const auto part = [&](std::vector<float>& x) { return batch(x).subview(b, aft::range{0, own}, aft::all); };
    // Row t of the bias is position t whatever the length, so a corner of it serves the shorter sequence.
    const aft::dense_bias corner{bias.w.subview({0, 0}, {own, own})};
    aft::full(part(q), part(k), part(v), corner, aft::as_view(alone.data(), {own, d}), aft::options{.causal = true});
    for (aft::index_t t = 0; t < T; ++t) {
      for (aft::index_t c = 0; c < d; ++c) {
        const float expected = t < own ? alone[static_cast<std::size_t>(t * d + c)] : 0.0F;
        same = same && batch(y)(b, t, c) == expected;
      }
    }
  }
  std::printf("each sequence %s alone, padding %s\n", same ? "as" : "not as", same ? "0" : "or not 0");
  return same ? 0 : 1;
}
