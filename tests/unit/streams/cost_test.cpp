// SPDX-License-Identifier: Apache-2.0
// What a position in a stream costs, counted by a bias that is asked for every pair: its window, or all positions
// before it, whatever came before and however many come at once.
#include <atomic>
#include <span>

#include "engines/own_engine.hpp"
#include "call/slots.hpp"
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::random_floats;
using aft::test::slots;

constexpr index_t d = 4, B = 2, T = 600;
constexpr aft::window win{20, 0};

/// Feeds T positions of B slots, n at a time. Returns the pairs asked for by the calls, one number each; `far` becomes
/// true where one was outside the window, or not of a position that the call has or one before it.
std::vector<index_t> asked(bool windowed, index_t n, bool& far) {
  const slots s(windowed ? aft::stream_spec::local<float>(d, d, win) : aft::stream_spec::full<float>(d, d, T), B);
  const std::vector<float> x = random_floats(B * T * d, 5);
  std::vector<float> y(x.size());
  std::atomic<index_t> count{0};
  std::atomic<bool> strange{false};
  index_t begin = 0;
  const auto f = [&](index_t, index_t, index_t t, index_t s0, std::span<float> row) noexcept {
    const auto end = s0 + static_cast<index_t>(row.size());
    if (s0 < 0 || end > t + 1 || t < begin || t >= begin + n || (windowed && s0 < t - win.before)) strange = true;
    for (float& w : row) w = 0.25F;
    count += static_cast<index_t>(row.size());
  };
  std::vector<index_t> counts;
  for (; begin < T; begin += n) {
    const index_t size = std::min(n, T - begin);
    const aft::tensor_view<const float, 3> in{x.data() + begin * d, {B, size, d}, {T * d, d, 1}};
    const aft::tensor_view<float, 3> out{y.data() + begin * d, {B, size, d}, {T * d, d, 1}};
    const aft::options opt{.causal = true, .stream = s.view()};
    count = 0;
    if (windowed) {
      aft::local(in, in, in, aft::generated_bias{1, f}, win, out, opt);
    } else {
      aft::full(in, in, in, aft::generated_bias{1, f}, out, opt);
    }
    counts.push_back(count);
  }
  far = strange;
  return counts;
}

}  // namespace

TEST_CASE("cost: a position of local asks for its window, one of full for the positions before it") {
  for (bool windowed : {true, false})
    for (index_t n : {1, 5, 200}) {
      CAPTURE(windowed);
      CAPTURE(n);
      bool far = false;
      const auto counts = asked(windowed, n, far);
      CHECK(!far);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        index_t pairs = 0;
        for (index_t t = static_cast<index_t>(i) * n; t < std::min(static_cast<index_t>(i + 1) * n, T); ++t)
          pairs += windowed ? std::min(t, win.before) + 1 : t + 1;
        // Once for each slot, or once for all.
        CHECK(counts[i] <= B * pairs);
        CHECK(counts[i] >= pairs);
      }
    }
}
