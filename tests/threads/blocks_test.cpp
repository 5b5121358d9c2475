// SPDX-License-Identifier: Apache-2.0
// Weights of several blocks, with all columns packed first or a group of lane tiles at a time: the same bits. Compiled
// with blocks of 512 KiB, which columns of one batch element fit and those of three do not.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;
constexpr index_t T = 600, d = 80, most = 3;  // more keys than a depth block, more lane tiles than a group

template <class E>
std::vector<E> numbers(index_t n, std::uint32_t seed) {
  std::vector<E> all(static_cast<std::size_t>(n));
  for (E& x : all) {
    seed = seed * 1664525u + 1013904223u;
    x = E(static_cast<float>(seed >> 16) / 16384.0f - 2.0f);
  }
  return all;
}

template <class E>
struct call {
  bool causal;
  std::vector<E> q = numbers<E>(most * T * d, 1), k = numbers<E>(most * T * d, 2), v = numbers<E>(most * T * d, 3),
                 dy = numbers<E>(most * T * d, 4), w = numbers<E>(T * T, 5);

  static aft::tensor_view<const E, 3> in(const std::vector<E>& x, index_t B) { return {x.data(), {B, T, d}}; }
  static aft::tensor_view<E, 3> out(std::vector<E>& x, index_t B) { return {x.data(), {B, T, d}}; }
  static std::vector<E> room(index_t B) { return std::vector<E>(static_cast<std::size_t>(B * T * d)); }
  aft::dense_bias<aft::tensor_view<const E, 2>> bias() const { return {{w.data(), {T, T}}}; }

  /// y, or dk and dv, of the first B batch elements.
  std::vector<E> forward(index_t B, int threads) const {
    std::vector<E> y = room(B);
    aft::full(aft::cpu{.threads = threads}, in(q, B), in(k, B), in(v, B), bias(), out(y, B), {.causal = causal});
    return y;
  }
  std::vector<E> backward(index_t B, int threads) const {
    std::vector<E> dq = room(B), dk = room(B), dv = room(B), dw(static_cast<std::size_t>(T * T));
    aft::full_backward(aft::cpu{.threads = threads}, in(q, B), in(k, B), in(v, B), bias(), in(dy, B), out(dq, B),
                       out(dk, B), out(dv, B), aft::dense_bias{aft::tensor_view<E, 2>{dw.data(), {T, T}}},
                       {.causal = causal});
    // Of the first element alone, which no other changes; dw is a sum over all.
    dk.resize(static_cast<std::size_t>(T * d));
    dk.insert(dk.end(), dv.begin(), dv.begin() + T * d);
    return dk;
  }
};

template <class E>
bool begins_alike(const std::vector<E>& a, const std::vector<E>& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(T * d) * sizeof(E)) == 0;
}

}  // namespace

TEST_CASE_TEMPLATE("blocks: neither their number nor which operand comes first shows in the bits", E, float,
                   aft::bfloat16) {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const call<E> x{causal};
    const std::vector<E> y = x.forward(most, 1), gradients = x.backward(most, 1);
    for (const int threads : {1, 2, 3, 5}) {
      CAPTURE(threads);
      CHECK(begins_alike(x.forward(1, threads), y));
      const std::vector<E> own = x.backward(1, threads);
      CHECK(std::memcmp(own.data(), gradients.data(), own.size() * sizeof(E)) == 0);
    }
  }
}
