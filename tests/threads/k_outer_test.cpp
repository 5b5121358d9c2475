// SPDX-License-Identifier: Apache-2.0
// Long sequences by slabs of keys, in memory that does not grow with them, and otherwise: the same bits. Compiled with
// slabs of one lane tile and chunks of a few panels, and again with slabs of several tiles. A bias whose columns lie
// apart has to be copied and takes the other way.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <string>
#include <type_traits>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;

template <class E>
std::vector<E> numbers(index_t n, std::uint32_t seed, float scale = 1) {
  std::vector<E> all(static_cast<std::size_t>(n));
  for (E& x : all) {
    seed = seed * 1664525u + 1013904223u;
    x = E(scale * (static_cast<float>(seed >> 16) / 16384.0f - 2.0f));
  }
  return all;
}

/// Passes calls on and counts what is held.
class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t peak() const { return peak_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    held_ -= bytes;
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::size_t held_ = 0, peak_ = 0;
};

/// Biases of bfloat16 calls are floats here, as those of their own type are copied.
template <class E>
using bias_type = std::conditional_t<std::is_same_v<E, aft::bfloat16>, float, E>;

template <class E>
struct call {
  using W = bias_type<E>;
  index_t B, T, d;
  bool causal = false;
  index_t Tq = T, heads = 1, pad = 0;  ///< rows of w are pad numbers longer
  bool batched = false;                ///< every batch element has a w of its own
  index_t rank = 0;                    ///< of u v^T in place of w; 0: none
  std::vector<E> q = numbers<E>(B * Tq * d, 1), k = numbers<E>(B * T * d, 2), v = numbers<E>(B * T * d, 3);
  std::vector<W> w = numbers<W>(rank > 0 ? 0 : (batched ? B : 1) * heads * Tq * (T + pad), 4);
  std::vector<W> factors = numbers<W>(heads * (Tq + T) * rank, 5, 0.5f);
  std::vector<std::uint8_t> mask = {};  ///< of each key, where some are hidden

  struct results {
    std::vector<E> y, average;
    std::vector<W> lse;
    std::size_t peak;

    /// The same bits; which NaN is no matter.
    bool operator==(const results& other) const {
      const auto same = []<class T>(const std::vector<T>& a, const std::vector<T>& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& one, const T& two) {
          const bool some = one == one || two == two;
          return !some || std::memcmp(&one, &two, sizeof(T)) == 0;
        });
      };
      return same(y, other.y) && same(lse, other.lse) && same(average, other.average);
    }
  };

  /// With w as it is, or from every second number of an array; with factors, or with a mask of every pair besides.
  results run(bool by_slabs, int threads) const {
    const auto size = static_cast<std::size_t>(B * Tq * d);
    results r{std::vector<E>(size), std::vector<E>(size), std::vector<W>(size), 0};
    std::vector<W> apart;
    if (!by_slabs && rank == 0) {
      apart.resize(2 * w.size());
      for (std::size_t i = 0; i < w.size(); ++i) apart[2 * i] = w[i];
    }
    const index_t step = by_slabs ? 1 : 2, row = step * (T + pad);
    const W* const first = by_slabs ? w.data() : apart.data();
    const aft::tensor_view<const W, 3> shared{first, {heads, Tq, T}, {row * Tq, row, step}};
    const aft::tensor_view<const W, 4> own{first, {B, heads, Tq, T}, {row * Tq * heads, row * Tq, row, step}};
    const auto in = [&](const std::vector<E>& x, index_t rows) {
      return aft::tensor_view<const E, 3>{x.data(), {B, rows, d}};
    };
    const auto out = [&]<class X>(std::vector<X>& x) { return aft::tensor_view<X, 3>{x.data(), {B, Tq, d}}; };
    aft::options opts{.causal = causal, .average = out(r.average)};
    // Without it products of bfloat16 may be those of pairs.
    if constexpr (std::is_same_v<E, W>) opts.lse = out(r.lse);
    if (!mask.empty()) opts.mask = aft::tensor_view<const std::uint8_t, 3>{mask.data(), {B, 1, T}};
    counting_resource memory;
    const aft::cpu exec{.threads = threads, .memory = &memory};
    std::vector<std::uint8_t> pairs;
    if (rank > 0) {
      if (!by_slabs) {
        pairs.assign(static_cast<std::size_t>(Tq * T), 1);
        opts.mask = aft::tensor_view<const std::uint8_t, 3>{pairs.data(), {1, Tq, T}};
      }
      const aft::tensor_view<const W, 3> u{factors.data(), {heads, Tq, rank}};
      const aft::tensor_view<const W, 3> of_keys{factors.data() + heads * Tq * rank, {heads, T, rank}};
      aft::full(exec, in(q, Tq), in(k, T), in(v, T), aft::factorized_bias{u, of_keys}, out(r.y), opts);
    } else if (batched) {
      aft::full(exec, in(q, Tq), in(k, T), in(v, T), aft::dense_bias{own}, out(r.y), opts);
    } else {
      aft::full(exec, in(q, Tq), in(k, T), in(v, T), aft::dense_bias{shared}, out(r.y), opts);
    }
    r.peak = memory.peak();
    return r;
  }

  void expect_the_same() const {
#if defined(AFT_TEST_WATCHED)  // other trees compare with other ways; races are between threads
    const results of_two = run(true, 2);
    CHECK(run(true, 5) == of_two);
#else
    const results other = run(false, 1), alone = run(true, 1);
    // A test of slabs only if less is held.
    CHECK(alone.peak < other.peak / 2);
    CHECK(alone == other);
    for (const int threads : {2, 3, 5}) {
      CAPTURE(threads);
      CHECK(run(true, threads) == other);
    }
#endif
  }
};

}  // namespace

#if defined(AFT_TEST_WATCHED)  // a race is one whatever the type of the arithmetic
#define AFT_SLAB_TYPES float
#else
#define AFT_SLAB_TYPES float, double
#endif

TEST_CASE_TEMPLATE("slabs: the bits of other ways, for every number of threads", E, AFT_SLAB_TYPES, aft::bfloat16) {
  // Keys of several depth blocks, whole vectors or not, and lane tiles that reach into the next batch element.
  for (const bool causal : {false, true}) {
    const index_t whole = 1104, T = 1100;
    CAPTURE(causal);
    call<E>{.B = 1, .T = causal ? whole : T, .d = 40, .causal = causal}.expect_the_same();
    call<E>{.B = 3, .T = causal ? T : whole, .d = 12, .causal = causal}.expect_the_same();
    call<E>{.B = 2, .T = causal ? whole : T, .d = 88, .causal = causal}.expect_the_same();
  }
  call<E>{.B = 1, .T = 1104, .d = 40, .Tq = 600, .pad = 7}.expect_the_same();
  call<E>{.B = 2, .T = 600, .d = 40, .Tq = 1100, .pad = 8}.expect_the_same();
  call<E>{.B = 2, .T = 1104, .d = 48, .heads = 2}.expect_the_same();
  call<E>{.B = 2, .T = 1104, .d = 48, .heads = 2, .batched = true}.expect_the_same();
  // Rows that see all keys after those that see some, and keys that no row sees.
  call<E>{.B = 1, .T = 600, .d = 40, .causal = true, .Tq = 1100}.expect_the_same();
  call<E>{.B = 1, .T = 1104, .d = 40, .causal = true, .Tq = 600}.expect_the_same();
  // Weights that are formed once for the largest of each row, and again for every pass.
  for (const bool causal : {false, true})
    call<E>{.B = 2, .T = 1104, .d = 40, .causal = causal, .rank = 5}.expect_the_same();
  call<E>{.B = 1, .T = 1100, .d = 88, .Tq = 600, .heads = 2, .rank = 3}.expect_the_same();
  // More threads than blocks of a chunk or lane tiles of a pass, on few rows.
  const call<E> few{.B = 1, .T = 1104, .d = 40, .Tq = 20};
  CHECK(few.run(true, 16) == few.run(false, 1));
}

TEST_CASE_TEMPLATE("slabs: keys, values and biases of any size, and hidden ones", E, AFT_SLAB_TYPES) {
  constexpr index_t T = 1040, d = 24;
  const auto at = [&](index_t s, index_t c) { return static_cast<std::size_t>(s * d + c); };
  const auto weight_at = [&](index_t t, index_t s) { return static_cast<std::size_t>(t * T + s); };
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    call<E> x{.B = 1, .T = T, .d = d, .causal = causal};
    const E inf = std::numeric_limits<E>::infinity();
    for (index_t s = 0; s < T; ++s) {
      x.k[at(s, 0)] *= E(100);           // a channel of large keys
      x.k[at(s, 1)] -= E(300);           // one of small ones
      x.v[at(s, 2)] *= E(1e-30f);        // tiny values
      x.w[weight_at(7, s)] -= E(3000);   // a row of small weights
      x.w[weight_at(600, s)] *= E(500);  // one whose weights are far apart
    }
    x.k[at(900, 3)] = E(5000);  // a key beyond the range of exponentials, of the last slab
    x.k[at(3, 4)] = -inf;
    for (index_t s = 500; s < 900; ++s) x.w[weight_at(800, s)] = -inf;
    x.w[weight_at(801, 20)] = E(1e30f);
    x.expect_the_same();
    x.mask.assign(static_cast<std::size_t>(T), 1);
    for (index_t s = 512; s < 1024; ++s) x.mask[static_cast<std::size_t>(s)] = 0;  // a whole slab
    x.expect_the_same();
  }
}

TEST_CASE_TEMPLATE("slabs: what is no number reaches the rows that see it, and no others", E, AFT_SLAB_TYPES) {
  constexpr index_t T = 1040, d = 24;
  const auto at = [&](index_t t, index_t c) { return static_cast<std::size_t>(t * d + c); };
  const E nan = std::numeric_limits<E>::quiet_NaN(), inf = std::numeric_limits<E>::infinity();
  call<E> x{.B = 1, .T = T, .d = d, .causal = true};
  const auto before = x.run(true, 2);
  x.k[at(600, 0)] = nan;
  x.k[at(601, 1)] = inf;
  x.v[at(602, 2)] = nan;
  x.v[at(603, 3)] = -inf;
  x.w[static_cast<std::size_t>(700 * T + 20)] = nan;
  x.q[at(650, 5)] = nan;
  x.expect_the_same();
  const auto after = x.run(true, 2);
  for (index_t t = 0; t < T; ++t) {
    for (index_t c = 0; c < d; ++c) {
      const bool changed = t == 700 || (c < 4 && t >= 600 + c) || (t == 650 && c == 5);
      CAPTURE(t);
      CAPTURE(c);
      if (changed) {
        CHECK(!(std::abs(after.y[at(t, c)]) <= std::numeric_limits<E>::max()));
      } else {
        CHECK(std::memcmp(&after.y[at(t, c)], &before.y[at(t, c)], sizeof(E)) == 0);
      }
    }
  }
}

#if AFT_OUTER_BYTES == 1024
TEST_CASE_TEMPLATE("slabs: scratch does not grow with the sequence but by the scales of its rows", E, float, double) {
  const std::size_t few = call<E>{.B = 1, .T = 1056, .d = 16}.run(true, 2).peak;
  const std::size_t many = call<E>{.B = 1, .T = 2112, .d = 16}.run(true, 2).peak;
  MESSAGE(std::to_string(few), " bytes, of twice the sequence ", std::to_string(many));
  CHECK(many < few + few / 100);
}
#endif
