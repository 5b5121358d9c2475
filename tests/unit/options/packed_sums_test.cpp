// SPDX-License-Identifier: Apache-2.0
// Packed sequences that share a generated bias: rows of its gradient are sums over them. The harness watches those of
// short ones; here they are too many for one pass, so that heads, and rows of a head, take passes of their own.
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

#include "engines/own_engine.hpp"
#include "expect_error.hpp"
#include "memory.hpp"

namespace {

using aft::index_t;

struct packed_call {
  std::vector<std::int64_t> lengths;
  index_t d, hk, H;
  double scale = 1;  ///< of keys and biases
};

template <class C>
class gradients {
 public:
  explicit gradients(const packed_call& c) : c_(c), offsets_{0} {
    for (std::int64_t n : c.lengths) {
      offsets_.push_back(offsets_.back() + n);
      longest_ = std::max<index_t>(longest_, n);
    }
    total_ = offsets_.back();
    q_ = numbers(total_ * c.d, 1, 1);
    k_ = numbers(total_ * c.hk, 2, c.scale);
    pairs_ = static_cast<std::size_t>(c.H * longest_ * longest_);
  }

  struct result {
    std::vector<C> dq, dk, dv, dw;
    std::size_t scratch = 0;  ///< the most bytes that were held
    int asked = 0;            ///< the most that a pair of the longest sequence alone was asked for
    bool in_order = true;     ///< rows of a part came one after the other
    bool once = true;         ///< and every pair once
  };

  result generated(int threads) const {
    result r = sized();
    std::vector<std::atomic<int>> asked(pairs_);
    std::vector<char> taken(pairs_);
    const auto f = [&](index_t, index_t h, index_t t, index_t s0, std::span<C> row) noexcept {
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = w(h, t, s0 + static_cast<index_t>(i));
        asked[place(h, t, s0) + i].fetch_add(1, std::memory_order_relaxed);
      }
    };
    std::atomic<bool> busy[parts] = {}, wrong{false};
    std::size_t next[parts] = {};
    const auto take = [&](index_t part, index_t b, index_t h, index_t t, index_t s0, std::span<const C> dw) noexcept {
      const std::size_t at = place(h, t, s0), of = static_cast<std::size_t>(part);
      if (busy[of].exchange(true) || b != 0 || at < next[of] || part != (h * longest_ + t) % parts) wrong = true;
      next[of] = at + dw.size();
      for (std::size_t i = 0; i < dw.size(); ++i) {
        r.dw[at + i] = dw[i];
        ++taken[at + i];
      }
      busy[of] = false;
    };
    call(threads, aft::generated_bias{c_.H, f}, aft::generated_bias_gradient{take, parts}, r);
    r.in_order = !wrong;
    // Elsewhere each sequence asks for itself.
    std::int64_t second = 0;
    for (std::int64_t n : c_.lengths) second = n < longest_ ? std::max(second, n) : second;
    for (std::size_t i = 0; i < pairs_; ++i) {
      const auto side = static_cast<std::size_t>(longest_);
      const auto beyond = static_cast<std::size_t>(second);
      if (i / side % side >= beyond || i % side >= beyond) r.asked = std::max(r.asked, asked[i].load());
      r.once = r.once && taken[i] == 1;
    }
    return r;
  }

  result dense() const {
    std::vector<C> values(pairs_);
    for (std::size_t i = 0; i < pairs_; ++i) {
      const auto at = static_cast<index_t>(i);
      values[i] = w(at / (longest_ * longest_), at / longest_ % longest_, at % longest_);
    }
    result r = sized();
    const std::array<index_t, 3> extents{c_.H, longest_, longest_};
    call(2, aft::dense_bias{aft::tensor_view<const C, 3>{values.data(), extents}},
         aft::dense_bias{aft::tensor_view<C, 3>{r.dw.data(), extents}}, r);
    return r;
  }

 private:
  static constexpr index_t parts = 7;

  static std::vector<C> numbers(index_t n, int seed, double scale) {
    std::vector<C> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<C>(scale * std::sin(0.37 * static_cast<double>(i) * (seed + 1) + seed));
    return x;
  }
  C w(index_t h, index_t t, index_t s) const {
    return static_cast<C>(c_.scale * static_cast<double>((7 * t + 13 * s + 5 * h) % 31 - 15) / 10);
  }
  std::size_t place(index_t h, index_t t, index_t s) const {
    return static_cast<std::size_t>((h * longest_ + t) * longest_ + s);
  }
  result sized() const {
    result r;
    r.dq.resize(q_.size());
    r.dv.resize(q_.size());
    r.dk.resize(k_.size());
    r.dw.resize(pairs_);
    return r;
  }
  template <class Bias, class Gradient>
  void call(int threads, const Bias& bias, const Gradient& dbias, result& r) const {
    const auto in = [&](const std::vector<C>& x, index_t channels) {
      return aft::tensor_view<const C, 2>{x.data(), {total_, channels}};
    };
    const auto out = [&](std::vector<C>& x, index_t channels) {
      return aft::tensor_view<C, 2>{x.data(), {total_, channels}};
    };
    const aft::options opt{
        .causal = true,
        .query_offsets = aft::tensor_view<const std::int64_t, 1>{offsets_.data(), {std::ssize(offsets_)}}};
    aft::test::counting_resource counted;
    aft::full_backward(aft::cpu{.threads = threads, .memory = &counted}, in(q_, c_.d), in(k_, c_.hk), in(q_, c_.d),
                       bias, in(q_, c_.d), out(r.dq, c_.d), out(r.dk, c_.hk), out(r.dv, c_.d), dbias, opt);
    r.scratch = counted.peak();
  }

  packed_call c_;
  std::vector<std::int64_t> offsets_;
  index_t total_ = 0, longest_ = 0;
  std::vector<C> q_, k_;
  std::size_t pairs_ = 0;
};

template <class C>
void check(const packed_call& c) {
  CAPTURE(c.d);
  CAPTURE(c.hk);
  CAPTURE(c.H);
  CAPTURE(c.scale);
  const gradients<C> g(c);
  const auto once = g.generated(1);
  CHECK(once.in_order);
  CHECK(once.once);
  CHECK(once.asked <= 4);
  // Buffers of a fixed size, and less than 16 arrays of the call's rows.
  CHECK(once.scratch <= (std::size_t{64} << 20) + 16 * once.dq.size() * sizeof(C));
#if !defined(AFT_TEST_WATCHED)  // sanitizers look at addresses, other trees at numbers
  const auto dense = g.dense();
  CHECK(once.dq == dense.dq);
  CHECK(once.dk == dense.dk);
  CHECK(once.dv == dense.dv);
  // Sums in another order: a few units of the largest.
  C most = 0, off = 0;
  for (std::size_t i = 0; i < dense.dw.size(); ++i) {
    most = std::max(most, std::abs(dense.dw[i]));
    off = std::max(off, std::abs(dense.dw[i] - once.dw[i]));
  }
  CHECK(off <= 8 * std::numeric_limits<C>::epsilon() * most);
  CHECK(most > 0);
  CHECK(g.generated(3).dw == once.dw);
#endif
}

}  // namespace

// 32 MiB hold sums of 4M pairs in double.

TEST_CASE("packed sums: a pass for each head, whose channels share a key channel with no other head's, or with some") {
  check<double>({{200, 0, 840, 3}, 12, 2, 6});
  check<double>({{200, 0, 920, 3}, 15, 3, 5});
}

TEST_CASE("packed sums: a pass for some rows of a head") {
  check<double>({{40, 2060, 300}, 1, 1, 1});
}

TEST_CASE("packed sums: logits beyond what a power of two and a float hold are asked for as often as promised") {
  const auto r = gradients<double>({{30, 840}, 6, 6, 6, 1e6}).generated(2);
  CHECK(r.asked <= 4);
  CHECK(r.in_order);
  CHECK(r.once);
}

TEST_CASE("packed sums: one sequence among empty ones, and none") {
  check<float>({{0, 12, 0}, 4, 2, 2});
  const auto none = gradients<float>({{0, 0}, 4, 2, 2}).generated(2);
  CHECK(none.dw.empty());
}
