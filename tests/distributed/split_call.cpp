// SPDX-License-Identifier: Apache-2.0
#include "split_call.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "engines/engines.hpp"

namespace aft::test {

namespace {

const split_functions& functions_of(dtype type) {
  if (type == dtype::f64) return split_f64;
  if (type == dtype::f16) return split_f16;
  return type == dtype::bf16 ? split_bf16 : split_f32;
}

std::vector<index_t> random_parts(index_t T, int ranks, std::mt19937_64& random) {
  std::vector<index_t> edges{0, T};
  for (int r = 1; r < ranks; ++r) edges.push_back(static_cast<index_t>(random() % static_cast<std::uint64_t>(T + 1)));
  std::sort(edges.begin(), edges.end());
  std::vector<index_t> lengths;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) lengths.push_back(edges[i + 1] - edges[i]);
  return lengths;
}

std::string words_of(const split_lengths& cut) {
  std::string words = "cut at queries";
  for (const index_t n : cut.queries) words += ' ' + std::to_string(n);
  words += ", keys";
  for (const index_t n : cut.keys) words += ' ' + std::to_string(n);
  return words;
}

/// What ranks threw, which here is always a mistake.
std::string thrown_words(const split_results& got) {
  std::string words;
  for (const std::string& text : got.thrown) words += text.empty() ? "" : text + '\n';
  return words;
}

}  // namespace

split_lengths random_lengths(const setup& raw, int ranks, unsigned seed) {
  const setup s = completed(raw);
  std::mt19937_64 random(seed);
  const bool grid = s.call == op::conv && s.grid.size() > 1;
  split_lengths cut;
  cut.queries = random_parts(grid ? s.grid[0] : s.Tq, ranks, random);
  // Of a sequence with as many keys as queries the usual cut is the same for both.
  const bool same = grid || (s.Tq == s.Tk && random() % 4 != 0);
  cut.keys = same ? cut.queries : random_parts(s.Tk, ranks, random);
  return cut;
}

bool& messages_wait() {
  static bool wait = false;
  return wait;
}

split_results split_forward(dtype type, const setup& s, const numbers& x, const split_lengths& cut) {
  const split_functions& of = functions_of(type);
  return (on_device() ? of.device_forward : of.forward)(s, x, cut);
}

split_results split_backward(dtype type, const setup& s, const numbers& x, const split_lengths& cut) {
  results saved;
  if (s.save) {
    setup forward = s;
    forward.in_place = false;
    forward.arithmetic = arithmetic::full;
    saved = run_forward(type, forward, x);
  }
  const split_functions& of = functions_of(type);
  return (on_device() ? of.device_backward : of.backward)(s, x, cut, &saved);
}

void check_split(dtype type, const setup& s, const numbers& x, const split_lengths& cut) {
  const split_results forward = split_forward(type, s, x, cut);
  const std::string failed = thrown_words(forward);
  REQUIRE_MESSAGE(failed.empty(), failed, describe(completed(s), type), ' ', words_of(cut));
  oracle_result oracle = evaluate_forward(type, s, x);
  // One rank makes the plain call; the copies of several are computed in the arithmetic type.
  const bool plain = cut.queries.size() == 1;
  if (plain) oracle.pair_error = pair_error(type, s);
  expect_within(type, s, forward.joint, oracle, words_of(cut));
  const split_results backward = split_backward(type, s, x, cut);
  const std::string failed_backward = thrown_words(backward);
  REQUIRE_MESSAGE(failed_backward.empty(), failed_backward, describe(completed(s), type), ' ', words_of(cut));
  oracle = evaluate_backward(type, s, x);
  if (plain) allow_products(type, s, oracle);
  expect_within(type, s, backward.joint, oracle, words_of(cut));
}

}  // namespace aft::test
