// SPDX-License-Identifier: Apache-2.0
// Everything at once: calls whose every property is drawn at random, from a fixed seed.
#include <doctest/doctest.h>

#include <random>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

class draw {
 public:
  explicit draw(unsigned seed) : engine_(seed) {}
  index_t up_to(index_t n) { return static_cast<index_t>(engine_() % static_cast<std::uint64_t>(n + 1)); }
  bool one_in(index_t n) { return up_to(n - 1) == 0; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[up_to(static_cast<index_t>(choices.size()) - 1)];
  }
  index_t length() { return of<index_t>({1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 20, 31, 33}); }

 private:
  std::mt19937_64 engine_;
};

/// Any call of `call` that the contract allows.
setup random_setup(op call, unsigned seed) {
  draw d(seed);
  setup s;
  s.call = call;
  s.seed = seed;
  s.B = d.of<index_t>({1, 1, 2, 3});
  s.d = d.of<index_t>({1, 2, 4, 6, 12, 16, 18});
  const auto divisor = [&](index_t n) {
    index_t m = 1 + d.up_to(n - 1);
    while (n % m != 0) --m;
    return m;
  };
  s.H = divisor(s.d);
  s.hk = d.one_in(2) ? s.d : divisor(s.d);
  s.Tq = s.Tk = d.length();
  if ((call == op::full || call == op::simple) && d.one_in(2)) s.Tk = d.length();
  s.causal = d.one_in(2);
  s.mask = d.of({mask_form::none, mask_form::none, mask_form::keys, mask_form::batch_keys, mask_form::pairs,
                 mask_form::batch_pairs});
  s.lengths = d.one_in(3);
  s.outside = d.one_in(3) ? aft::outside::excluded : aft::outside::zero_bias;
  s.gate_fn = static_cast<aft::gate>(d.up_to(5));
  s.inputs = static_cast<layout>(d.up_to(6));
  s.outputs = static_cast<layout>(d.up_to(5));
  s.k_scale = d.of({1., 1., 10., 50., 200.});
  s.w_scale = d.of({1., 1., 10., 50., 200.});
  s.q_scale = d.of({1., 5.});
  s.v_scale = d.of({1., 1e-3, 100.});
  s.save = d.one_in(2);
  s.narrow_average = d.one_in(2);
  s.n = d.of<index_t>({1, 2, 5, 16});
  s.win = {d.up_to(9) - 2, d.up_to(9) - 2};
  if (s.win.width() < 0) s.win = aft::window::strict(d.up_to(20));
  if (call == op::full) s.bias = static_cast<bias_form>(d.up_to(6));
  if (call == op::local) s.bias = static_cast<bias_form>(d.up_to(8));
  if (call == op::conv) {
    const index_t axes = s.causal ? 1 : 1 + d.up_to(2);
    for (index_t i = 0; i < axes; ++i) {
      s.grid.push_back(axes == 1 ? d.length() : 1 + d.up_to(axes == 2 ? 6 : 3));
      s.taps.push_back(1 + d.up_to(axes == 1 ? 9 : 4));
    }
  }
  // Drawn last, so that what was drawn before these options existed stays as it was.
  s.query_lengths = d.one_in(4);
  s.narrow_integers = d.one_in(2);
  if (s.mask == mask_form::pairs && d.one_in(2)) s.mask = mask_form::flat_pairs;
  if (s.mask == mask_form::keys && d.one_in(2)) s.mask = mask_form::flat_keys;
  if (d.one_in(4) && s.grid.size() <= 1) {
    s.first_query = d.of<index_t>({0, 1, 2, 7, 14, 30});
    if (call == op::local) s.Tk = d.length();
    if (call == op::conv) s.queries = d.length();
  }
  return s;
}

void check_random(op call, unsigned first_seed, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const setup s = random_setup(call, first_seed + i);
    const numbers x = random_numbers(s);
    // Two of the four types each, so that more calls are seen in the same time.
    for (auto type : {all_types[i % 4], all_types[(i + 1) % 4]}) {
      check_forward(type, s, x);
      check_backward(type, s, x);
    }
  }
}

}  // namespace

TEST_CASE("combinations: full") {
  check_random(op::full, 10000, 300);
}
TEST_CASE("combinations: local") {
  check_random(op::local, 20000, 300);
}
TEST_CASE("combinations: simple") {
  check_random(op::simple, 30000, 200);
}
TEST_CASE("combinations: conv") {
  check_random(op::conv, 40000, 300);
}
