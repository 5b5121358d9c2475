// SPDX-License-Identifier: Apache-2.0
// A hidden key, value or pair may hold anything.
#include <doctest/doctest.h>

#include "call/cases.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Element of a (B, T, channels) array.
double& at(std::vector<double>& x, index_t T, index_t channels, index_t b, index_t t, index_t c) {
  return x[static_cast<std::size_t>((b * T + t) * channels + c)];
}

/// k and v of one key, in all channels.
void poison_key(const setup& s, numbers& x, index_t b, index_t key, double value) {
  const setup whole = completed(s);
  for (index_t c = 0; c < whole.hk; ++c) at(x.k, whole.Tk, whole.hk, b, key, c) = value;
  for (index_t c = 0; c < whole.d; ++c) at(x.v, whole.Tk, whole.d, b, key, c) = value;
}

enum class sight {
  none,   ///< no query could see the key, so it changes no bit of a forward call, not even through a maximum
  pairs,  ///< hidden pair by pair: it changes nothing beyond rounding
};

/// Poisoned numbers must meet the oracle. `poison(x, value)` puts a value where it is hidden.
template <class Poison>
void expect_invisible(const setup& s, const numbers& harmless, sight hidden_as, Poison poison) {
  for (auto type : all_types) {
    if (!concerns(type, s)) continue;
    const results forward = run_forward(type, s, harmless);
    for (double value : {not_a_number, infinity, -infinity, 6e4}) {
      numbers x = harmless;
      poison(x, value);
      CAPTURE(value);
      check_forward(type, s, x);
      check_backward(type, s, x);
      if (hidden_as == sight::pairs) continue;
      CAPTURE(describe(s, type));
      CHECK(first_difference(forward, run_forward(type, s, x)) == "");
    }
  }
}

}  // namespace

TEST_CASE("hidden: keys beyond key_lengths hold anything") {
  for (bool causal : {false, true})
    for (setup s : every_operator(causal)) {
      s.lengths = true;
      numbers x = random_numbers(s);
      x.lengths = {13, 1};
      expect_invisible(s, x, sight::none, [&](numbers& y, double poison) {
        for (index_t b = 0; b < 2; ++b)
          for (index_t key = x.lengths[static_cast<std::size_t>(b)]; key < 20; ++key) poison_key(s, y, b, key, poison);
      });
    }
}

TEST_CASE("hidden: key lengths below zero or beyond the keys are clamped") {
  for (setup s : every_operator()) {
    s.lengths = true;
    numbers x = random_numbers(s);
    x.lengths = {-5, 1000};
    for (auto type : all_types) {
      check_forward(type, s, x);
      check_backward(type, s, x);
    }
  }
}

TEST_CASE("hidden: keys that a mask hides from every query hold anything") {
  for (auto form : {mask_form::keys, mask_form::batch_keys, mask_form::batch_pairs})
    for (setup s : every_operator()) {
      s.mask = form;
      numbers x = random_numbers(s);
      for (std::size_t i = 0; i < x.mask.size(); ++i) {
        if (i % 20 == 0 || i % 20 == 7 || i % 20 > 15) x.mask[i] = 0;
      }
      expect_invisible(s, x, form == mask_form::batch_pairs ? sight::pairs : sight::none,
                       [&](numbers& y, double poison) {
                         for (index_t b = 0; b < 2; ++b)
                           for (index_t key : {0, 7, 16, 19}) poison_key(s, y, b, key, poison);
                       });
    }
}

TEST_CASE("hidden: keys after every query hold anything in a causal call") {
  for (op call : {op::full, op::simple})
    for (auto form : {bias_form::dense_htt, bias_form::factorized_htn}) {
      const setup s{.call = call, .B = 2, .Tq = 9, .Tk = 20, .d = 6, .hk = 3, .H = 3, .bias = form, .causal = true};
      const numbers x = random_numbers(s);
      expect_invisible(s, x, sight::none, [&](numbers& y, double poison) {
        for (index_t b = 0; b < 2; ++b)
          for (index_t key = 9; key < 20; ++key) poison_key(s, y, b, key, poison);
        // The factors of a key that nobody sees are as hidden as the key itself.
        for (std::size_t i = 0; i < y.f.size(); ++i) {
          if (static_cast<index_t>(i) / s.n % 20 >= 9) y.f[i] = poison;
        }
      });
    }
}

TEST_CASE("hidden: entries of w that belong to hidden pairs hold anything") {
  const index_t T = 20;
  for (op call : {op::full, op::local})
    for (bool by_mask : {false, true}) {
      setup s{.call = call, .B = 2, .Tq = T, .Tk = T, .d = 6, .hk = 3, .H = 3, .win = {6, 6}, .causal = !by_mask};
      if (by_mask) s.mask = mask_form::pairs;
      const numbers x = random_numbers(s);
      expect_invisible(s, x, sight::pairs, [&](numbers& y, double poison) {
        for (index_t i = 0; i < 3 * T * T; ++i) {
          const index_t t = i / T % T, key = i % T;
          const bool hidden = by_mask ? x.mask[static_cast<std::size_t>(i % (T * T))] == 0 : key > t;
          const bool outside_window = call == op::local && (key < t - 6 || key > t + 6);
          if (hidden || outside_window) y.w[static_cast<std::size_t>(i)] = poison;
        }
      });
    }
}

TEST_CASE("hidden: entries of a banded bias whose key does not exist, or is in the future, hold anything") {
  const index_t T = 20, width = 11;
  for (bool causal : {false, true}) {
    const setup s{.call = op::local,
                  .B = 2,
                  .Tq = T,
                  .Tk = T,
                  .d = 6,
                  .hk = 3,
                  .H = 3,
                  .bias = bias_form::banded_htj,
                  .win = {6, 4},
                  .causal = causal};
    const numbers x = random_numbers(s);
    expect_invisible(s, x, sight::pairs, [&](numbers& y, double poison) {
      for (index_t i = 0; i < 3 * T * width; ++i) {
        const index_t t = i / width % T, key = t - 6 + i % width;
        if (key < 0 || key >= T || (causal && key > t)) y.w[static_cast<std::size_t>(i)] = poison;
      }
    });
  }
}

TEST_CASE("hidden: a bias of -inf hides the key, whatever the key holds") {
  const index_t T = 20;
  for (op call : {op::full, op::local}) {
    const setup s{.call = call, .B = 2, .Tq = T, .Tk = T, .d = 6, .hk = 3, .H = 3, .win = {T, T}};
    numbers x = random_numbers(s);
    for (index_t i = 0; i < 3 * T * T; ++i) {
      if (i % T == 4 || i % T == 17) x.w[static_cast<std::size_t>(i)] = -infinity;
    }
    expect_invisible(s, x, sight::pairs, [&](numbers& y, double poison) {
      for (index_t b = 0; b < 2; ++b) {
        poison_key(s, y, b, 4, poison);
        poison_key(s, y, b, 17, poison);
      }
    });
  }
}

TEST_CASE("hidden: k = -inf hides the key for that channel, whatever its value holds") {
  for (bool causal : {false, true})
    for (const setup& s : every_operator(causal)) {
      if (s.hk != s.d) continue;
      numbers x = random_numbers(s);
      for (auto [key, c] : {std::pair<index_t, index_t>{0, 1}, {3, 0}, {3, 1}, {19, 5}}) {
        at(x.k, 20, 6, 0, key, c) = -infinity;
        at(x.k, 20, 6, 1, key, c) = -infinity;
      }
      expect_invisible(s, x, sight::pairs, [&](numbers& y, double poison) {
        for (auto [key, c] : {std::pair<index_t, index_t>{0, 1}, {3, 0}, {3, 1}, {19, 5}}) {
          at(y.v, 20, 6, 0, key, c) = poison;
          at(y.v, 20, 6, 1, key, c) = poison;
        }
      });
    }
}

TEST_CASE("hidden: -inf scattered over keys and biases") {
  for (bool causal : {false, true})
    for (const setup& s : every_operator(causal))
      for (std::size_t every : {2u, 3u, 7u}) {
        numbers x = random_numbers(s);
        for (auto* tensor : {&x.k, &x.w, &x.r})
          for (std::size_t i = 0; i < tensor->size(); ++i) {
            if (i * i % every == 1) (*tensor)[i] = -infinity;
          }
        for (auto type : all_types) {
          check_forward(type, s, x);
          check_backward(type, s, x);
        }
      }
}
