// SPDX-License-Identifier: Apache-2.0
//
// Sequences of different lengths one behind the other, without padding: forward and backward in one call each.

#include <aft/aft.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  // Four sequences in 60 rows, one of them empty: sequence n is rows [offsets[n], offsets[n + 1]).
  const std::vector<std::int32_t> offsets{0, 31, 31, 43, 60};
  const aft::index_t total = offsets.back(), d = 16, longest = 31;
  const auto size = static_cast<std::size_t>(total * d);
  std::vector<float> q(size), k(size), v(size), dy(size, 1.0F), y(size), dq(size), dk(size), dv(size);
  std::vector<float> w(static_cast<std::size_t>(longest * longest)), dw(w.size());
  for (std::size_t i = 0; i < size; ++i) {
    q[i] = std::sin(0.1F * static_cast<float>(i));
    k[i] = std::cos(0.2F * static_cast<float>(i));
    v[i] = std::sin(0.3F * static_cast<float>(i));
  }
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(0.7F * static_cast<float>(i));

  const auto rows = [&](std::vector<float>& x) { return aft::as_view(x.data(), {total, d}); };
  // One bias for all: positions begin at 0 in each sequence, so it has as many rows and columns as the longest.
  const aft::dense_bias bias{aft::as_view(w.data(), {longest, longest})};
  const aft::dense_bias dbias{aft::as_view(dw.data(), {longest, longest})};
  const aft::options packed{.causal = true,
                            .query_offsets = aft::as_view(offsets.data(), {static_cast<aft::index_t>(offsets.size())})};
  aft::full(rows(q), rows(k), rows(v), bias, rows(y), packed);
  aft::full_backward(rows(q), rows(k), rows(v), bias, rows(dy), rows(dq), rows(dk), rows(dv), dbias, packed);

  // Bit for bit what a call for each sequence gives.
  bool same = true;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    const aft::index_t first = offsets[n], own = offsets[n + 1] - first;
    std::vector<float> alone(static_cast<std::size_t>(own * d));
    const auto part = [&](std::vector<float>& x) { return rows(x).subview(aft::range{first, first + own}, aft::all); };
    const aft::dense_bias corner{bias.w.subview({0, 0}, {own, own})};
    aft::full(part(q), part(k), part(v), corner, aft::as_view(alone.data(), {own, d}), aft::options{.causal = true});
    for (std::size_t i = 0; i < alone.size(); ++i)
      same = same && alone[i] == y[static_cast<std::size_t>(first * d) + i];
  }
  std::printf("%d sequences in %d rows, each %s alone\n", static_cast<int>(offsets.size() - 1), static_cast<int>(total),
              same ? "as" : "not as");
  return same ? 0 : 1;
}
