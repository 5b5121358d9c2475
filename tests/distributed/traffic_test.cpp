// SPDX-License-Identifier: Apache-2.0
// Bytes that ranks receive, against the table of docs/scale.md; the same bits again; and one rank as the plain call.
#include <doctest/doctest.h>

#include "call/cases.hpp"
#include "engines/own_engine.hpp"
#include "split_call.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

constexpr index_t B = 2, d = 6, hk = 3, H = 3, n = 2;
const split_lengths uneven{{12, 5, 0, 23}, {12, 5, 0, 23}};
constexpr index_t all = 40, ranks = 4;

setup call_of(op call, bool causal) {
  setup s{.call = call, .B = B, .Tq = all, .Tk = all, .d = d, .hk = hk, .H = H, .n = n, .win = {4, 3}};
  s.grid = {all};
  s.taps = {6};
  s.queries = all;
  s.causal = causal;
  s.save = false;
  return s;
}

/// The table's units: rows of keys and values, sums of far keys, what comes back of them, rows of gradients.
index_t key_rows(index_t rows, index_t element) {
  return rows * B * (hk + d) * element;
}
index_t sums(index_t count) {
  return count * B * (2 * hk + d) * 8;
}
index_t far_gradients(index_t count) {
  return count * B * (hk + 2 * d) * 8;
}

/// Bytes by messages to one rank, and what every rank gets of records that go to all, beyond those of every call.
void expect_received(const split_results& got, const std::vector<index_t>& bytes, index_t gathered = 0) {
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    CAPTURE(r);
    CHECK(got.thrown[r] == "");
    CHECK(got.moved[r].received == bytes[r]);
    CHECK(got.moved[r].gathered == ranks * (48 + 512) + gathered);
  }
}

}  // namespace

TEST_CASE("traffic: every call begins with 560 bytes from each rank, and no more before data moves") {
  setup s = call_of(op::simple, false);
  s.outside = aft::outside::excluded;
  s.call = op::local;
  for (const traffic& t : split_forward(dtype::f32, s, random_numbers(s), uneven).moved)
    CHECK(t.gathered == ranks * (48 + 512));
}

TEST_CASE("traffic of simple: one sum from every rank, whatever the lengths, by no message of its own") {
  for (const dtype type : {dtype::f32, dtype::bf16, dtype::f64}) {
    for (const bool causal : {false, true}) {
      setup s = call_of(op::simple, causal);
      const numbers x = random_numbers(s);
      const split_results forward = split_forward(type, s, x, uneven), backward = split_backward(type, s, x, uneven);
      expect_received(forward, {0, 0, 0, 0}, sums(ranks));
      expect_received(backward, {0, 0, 0, 0}, sums(ranks) + far_gradients(ranks));
      for (const split_results* got : {&forward, &backward})
        for (const traffic& t : got->moved) CHECK(t.messages == 0);
    }
  }
}

TEST_CASE("traffic of full: the other ranks' keys once, and the gradients of one's own from each") {
  const setup s = call_of(op::full, false);
  const numbers x = random_numbers(s);
  for (const dtype type : {dtype::f32, dtype::bf16}) {
    const index_t e = type == dtype::f32 ? 4 : 2;
    expect_received(split_forward(type, s, x, uneven), {key_rows(28, e), key_rows(35, e), 0, key_rows(17, e)});
    expect_received(split_backward(type, s, x, uneven),
                    {key_rows(28, e) + key_rows(2 * 12, 4), key_rows(35, e) + key_rows(2 * 5, 4), 0,
                     key_rows(17, e) + key_rows(2 * 23, 4)});
  }
}

TEST_CASE("traffic of local and conv: the keys in reach, from as many ranks as those are") {
  for (const op call : {op::local, op::conv}) {
    setup s = call_of(call, false);
    // Of a filter of 6 taps two stand before the query and three behind.
    const index_t before = call == op::local ? 4 : 2, after = 3;
    const numbers x = random_numbers(s);
    // The first and the last part are out of each other's reach, and so are their sums for all; of the others a rest
    // is.
    expect_received(
        split_forward(dtype::f32, s, x, uneven),
        {key_rows(after, 4) + sums(1), key_rows(before + after, 4) + sums(2), 0, key_rows(before, 4) + sums(1)},
        sums(ranks));
    const std::vector<index_t> near_back{before, before + after, 0, after};
    const split_results whole = split_backward(dtype::f32, s, x, uneven);
    const index_t filters = call == op::conv ? ranks * H * 6 * 4 : 0;
    std::vector<index_t> received;
    for (const traffic& t : split_forward(dtype::f32, s, x, uneven).moved) received.push_back(t.received);
    for (std::size_t r = 0; r < received.size(); ++r) received[r] += key_rows(near_back[r], 4);
    // What far keys get back is one record, for the rests too.
    expect_received(whole, received, sums(ranks) + far_gradients(ranks) + filters);
    if (call == op::local) continue;
    s.outside = aft::outside::excluded;
    const index_t taps = H * 6 * 4;
    const auto backward = split_backward(dtype::f32, s, x, uneven);
    expect_received(
        backward,
        {key_rows(after, 4) + key_rows(before, 4), key_rows(before + after, 4) + key_rows(before + after, 4), 0,
         key_rows(before, 4) + key_rows(after, 4)},
        ranks * taps);
  }
  // A window of 20 keys before: the last rank needs keys of both ranks that have any.
  setup s = call_of(op::local, true);
  s.win = {20, 0};
  s.outside = aft::outside::excluded;
  expect_received(split_forward(dtype::f32, s, random_numbers(s), uneven), {0, key_rows(12, 4), 0, key_rows(17, 4)});
}

TEST_CASE("traffic of factors: rows of u once, rows of v twice") {
  setup s = call_of(op::full, false);
  s.bias = bias_form::factorized_htn;
  const numbers x = random_numbers(s);
  const index_t row = H * n * 4;
  const auto other = [&](index_t own) {
    return key_rows(all - own, 4) + key_rows(2 * own, 4) + (all - own) * row + 2 * own * row + (all - own) * row;
  };
  expect_received(split_backward(dtype::f32, s, x, uneven), {other(12), other(5), 2 * all * row, other(23)});
}

TEST_CASE("one rank has the bits of the plain call") {
  for (const setup& s : every_operator(true)) {
    const numbers x = random_numbers(s);
    for (const dtype type : {dtype::f32, dtype::bf16}) {
      const setup whole = completed(s);
      const split_lengths one{{whole.Tq}, {whole.Tk}};
      CHECK(first_difference(split_forward(type, s, x, one).joint, run_forward(type, s, x)) == "");
      CHECK(first_difference(split_backward(type, s, x, one).joint, run_backward(type, s, x)) == "");
    }
  }
}

TEST_CASE("the same cut gives the same bits") {
  for (const setup& s : every_operator(false)) {
    const numbers x = random_numbers(s);
    const split_lengths cut = random_lengths(s, 3, 5);
    CHECK(first_difference(split_forward(dtype::f32, s, x, cut).joint, split_forward(dtype::f32, s, x, cut).joint) ==
          "");
    CHECK(first_difference(split_backward(dtype::f32, s, x, cut).joint, split_backward(dtype::f32, s, x, cut).joint) ==
          "");
  }
}
