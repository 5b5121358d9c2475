// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;

TEST_CASE("simple: causal or not, under every mask and lengths, with keys shared or not") {
  unsigned seed = 0;
  for (bool causal : {false, true})
    for (auto mask :
         {mask_form::none, mask_form::keys, mask_form::batch_keys, mask_form::pairs, mask_form::batch_pairs})
      for (bool lengths : {false, true})
        for (index_t hk : {1, 2, 3, 6}) {
          check({.call = op::simple,
                 .B = 2,
                 .Tq = 11,
                 .Tk = 11,
                 .d = 6,
                 .hk = hk,
                 .causal = causal,
                 .mask = mask,
                 .lengths = lengths,
                 .seed = ++seed});
        }
}

TEST_CASE("simple: queries and keys of different lengths") {
  unsigned seed = 100;
  for (bool causal : {false, true})
    for (bool lengths : {false, true})
      for (auto [Tq, Tk] : {std::pair<index_t, index_t>{1, 60}, {60, 1}, {7, 90}, {90, 7}}) {
        check({.call = op::simple,
               .B = 3,
               .Tq = Tq,
               .Tk = Tk,
               .d = 5,
               .causal = causal,
               .lengths = lengths,
               .seed = ++seed});
      }
}

TEST_CASE("simple: every gate, saved or recomputed") {
  unsigned seed = 200;
  for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    for (bool causal : {false, true})
      for (bool save : {false, true}) {
        check({.call = op::simple,
               .B = 2,
               .Tq = 9,
               .Tk = 9,
               .d = 5,
               .causal = causal,
               .gate_fn = g,
               .q_scale = 3,
               .seed = ++seed,
               .save = save});
      }
}

TEST_CASE("simple: keys that rise or fall along the sequence, so that the running maximum moves always or never") {
  for (bool causal : {false, true})
    for (double slope : {-1.5, 1.5}) {
      const setup s{.call = op::simple, .B = 1, .Tq = 70, .Tk = 70, .d = 3, .causal = causal};
      numbers x = random_numbers(s);
      for (std::size_t i = 0; i < x.k.size(); ++i) x.k[i] += slope * static_cast<double>(i / 3);
      for (auto type : all_types) {
        check_forward(type, s, x);
        check_backward(type, s, x);
      }
    }
}

TEST_CASE("simple: several chunks, nothing saved, with logits and gates of every size") {
  unsigned seed = 300;
  for (double scale : {1, 10, 50, 200})
    for (bool lengths : {false, true})
      for (auto [Tk, d] : {std::pair<index_t, index_t>{270, 5}, {262, 18}}) {
        check({.call = op::simple,
               .B = 1,
               .Tq = scale == 10 && d == 5 ? 260 : 40,
               .Tk = Tk,
               .d = d,
               .lengths = lengths,
               .q_scale = scale < 50 ? 1.0 : 60.0,
               .k_scale = scale,
               .seed = ++seed,
               .save = false});
      }
}

TEST_CASE("simple: a channel of causal gradients has the bits that it has among copies of itself") {
  // What one lane of a vector needs may send all of them another way.
  constexpr index_t T = 72, d = 16;
  for (bool save : {false, true})
    for (unsigned seed : {401U, 402U, 403U}) {
      const setup s{.call = op::simple, .B = 1, .Tq = T, .Tk = T, .d = d, .causal = true, .seed = seed, .save = save};
      numbers x = random_numbers(s);
      for (std::size_t i = 0; i < x.q.size(); ++i) {
        const std::size_t t = i / d, c = i % d;
        if (c == 1 && t % 9 == 4) x.q[i] = -100;
        if (c == 2) x.k[i] = t % 7 == 3 ? -123 : x.k[i] + 45;
        if (c == 3 && t > 20) x.k[i] *= 20;
        if (c == 4) x.v[i] *= 1e13;
        if (c == 5) x.dy[i] *= 1e-13;
        if (c == 6) x.dy[i] *= t > 40 ? 0. : (t == 40 ? 1e-36 : 1.);
        if (c == 7 && t % 5 == 1 && t > 5) x.k[i] = -std::numeric_limits<double>::infinity();
        if (c == 8) x.v[i] = 3;
        if (c == 9 && t > 30) x.dy[i] *= 1e20;
      }
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
        check_backward(type, s, x);
        const results mixed = run_backward(type, s, x);
        for (std::size_t c = 0; c < d; ++c) {
          CAPTURE(c);
          numbers y = x;
          for (auto own : {&numbers::q, &numbers::k, &numbers::v, &numbers::dy})
            for (std::size_t i = 0; i < x.q.size(); ++i) (y.*own)[i] = (x.*own)[i / d * d + c];
          const results alike = run_backward(type, s, y);
          for (auto own : {&results::dq, &results::dk, &results::dv})
            for (std::size_t t = 0; t < T; ++t) CHECK((mixed.*own)[t * d + c] == (alike.*own)[t * d + c]);
        }
      }
    }
}

TEST_CASE("simple: causal gradients whose stretches are cut for threads, in chunks") {
  for (bool save : {false, true}) {
    const setup s{.call = op::simple, .B = 1, .Tq = 600, .Tk = 600, .d = 48, .causal = true, .seed = 410, .save = save};
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::bf16}) {
      check_backward(type, s, x);
      CHECK(first_difference(run_backward(type, s, x, aft::cpu{.threads = 4}),
                             run_backward(type, s, x, aft::cpu{.threads = 1})) == "");
    }
  }
}

TEST_CASE("simple: one batch element, divided among threads by positions or by channels") {
  // Rows of whole lines, which several threads write pieces of around the caches, and rows that are not.
  for (bool causal : {false, true})
    for (index_t T : {512, 150})
      for (index_t d : {512, 525}) {
        const setup s{
            .call = op::simple, .B = 1, .Tq = T, .Tk = T, .d = d, .causal = causal, .seed = 420, .save = false};
        const numbers x = random_numbers(s);
        for (auto type : {aft::dtype::f32, aft::dtype::bf16}) {
          const results alone = run_forward(type, s, x, aft::cpu{.threads = 1});
          const results alone_back = run_backward(type, s, x, aft::cpu{.threads = 1});
          for (int threads : {2, 3}) {
            CAPTURE(threads);
            CHECK(first_difference(run_forward(type, s, x, aft::cpu{.threads = threads}), alone) == "");
            CHECK(first_difference(run_backward(type, s, x, aft::cpu{.threads = threads}), alone_back) == "");
          }
        }
      }
}
