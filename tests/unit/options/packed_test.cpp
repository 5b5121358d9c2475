// SPDX-License-Identifier: Apache-2.0
// Packed sequences: the bits of one call for each of them, and for a shared bias the sum of their gradients.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "call/sequences.hpp"
#include "engines/engine.hpp"
#include "engines/engines.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

/// Every operator and bias form with random lengths, of which some are 0 and one may be long. The rest changes from
/// call to call, each choice by a digit of its own.
std::vector<setup> packed_calls(unsigned rounds, index_t longest) {
  const struct {
    op call;
    bias_form form;
    bool generated = false;
  } kinds[] = {{op::full, bias_form::dense_htt},        {op::full, bias_form::dense_bhtt},
               {op::full, bias_form::factorized_mixed}, {op::full, bias_form::dense_1htt},
               {op::local, bias_form::dense_htt},       {op::local, bias_form::factorized_htn},
               {op::local, bias_form::banded_htj},      {op::local, bias_form::banded_tj},
               {op::simple, bias_form::dense_htt},      {op::conv, bias_form::dense_htt},
               {op::full, bias_form::dense_htt, true},  {op::local, bias_form::dense_bhtt, true}};
  const aft::window windows[] = {{3, 4}, {0, 0}, {longest, 2}, {7, -3}};
  std::mt19937 random(4);
  const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  std::vector<setup> all;
  for (unsigned round = 0; round < rounds; ++round)
    for (const auto& kind : kinds) {
      setup s{.call = kind.call, .d = 4, .hk = 2, .H = 2, .bias = kind.form, .generated = kind.generated};
      s.seed = static_cast<unsigned>(all.size() + 1);
      const unsigned count = pick(7) + 1;
      for (unsigned n = 0; n < count; ++n) s.packed.push_back(pick(4) == 0 ? 0 : pick(static_cast<unsigned>(longest)));
      if (pick(3) == 0) s.packed[pick(count)] = 5 * longest;
      if (pick(3) == 0)
        for (unsigned n = 0; n < count; ++n)
          s.packed_keys.push_back(pick(5) == 0 ? 0 : pick(static_cast<unsigned>(2 * longest)));
      s.win = windows[pick(4)];
      s.taps = {pick(2) == 0 ? 3 : 8};
      s.causal = pick(2) == 0;
      s.first_query = pick(3) == 0 ? pick(6) : 0;
      s.spare = pick(2) == 0 ? pick(4) : 0;
      s.save = pick(2) == 0;
      s.narrow_average = pick(2) == 0;
      s.narrow_integers = pick(2) == 0;
      s.in_place = pick(4) == 0;
      s.outside = pick(3) == 0 ? aft::outside::excluded : aft::outside::zero_bias;
      s.gate_fn = pick(4) == 0 ? aft::gate::none : aft::gate::sigmoid;
      s.inputs = pick(3) == 0 ? layout::padded : layout::row_major;
      s.outputs = pick(3) == 0 ? layout::padded : layout::row_major;
      if (pick(2) == 0) s.hk = 4;
      all.push_back(completed(s));
    }
  return all;
}

/// One call for each sequence.
results one_by_one(dtype type, const setup& s, const numbers& x, bool backward) {
  std::vector<results> all;
  for (std::size_t n = 0; n < s.packed.size(); ++n) {
    const auto at = static_cast<index_t>(n);
    const setup own = sequence_setup(s, at);
    const numbers numbers = sequence_numbers(s, x, at);
    all.push_back(backward ? run_backward(type, own, numbers) : run_forward(type, own, numbers));
  }
  return join_sequences(s, all, backward);
}

/// Gradients that are sums over the sequences are compared with the reference alone.
results without_sums(results r, const setup& s) {
  r.du.clear();
  r.df.clear();
  r.dr.clear();
  if (s.bias != bias_form::dense_bhtt) r.dw.clear();
  return r;
}

}  // namespace

TEST_CASE("packed: the bits of a call for each sequence, for any number of threads") {
  for (const setup& s : packed_calls(4, 24)) {
    const numbers x = random_numbers(s);
    for (dtype type : all_types) {
      if (!concerns(type, s) || !serves(type)) continue;
      CAPTURE(describe(s, type));
      CHECK(first_difference(one_by_one(type, s, x, false), run_forward(type, s, x)) == "");
      const results backward = run_backward(type, s, x);
      CHECK(first_difference(without_sums(one_by_one(type, s, x, true), s), without_sums(backward, s)) == "");
      if (on_device()) continue;
      const results forward = run_forward(type, s, x);
      for (const int threads : {2, 3}) {
        const aft::cpu exec{.threads = threads};
        CHECK(first_difference(forward, run_forward(type, s, x, exec)) == "");
        CHECK(first_difference(backward, run_backward(type, s, x, exec)) == "");
      }
    }
  }
}

TEST_CASE("packed: against the reference") {
  for (const setup& s : packed_calls(2, 14)) check(s);
}

TEST_CASE("packed: one long sequence among many short ones") {
  const processor_alone here;
  if (!here) return;
  std::mt19937 random(7);
  const std::size_t sequences = watched() ? 15 : 60;  // all of them took 80 s there
  for (const setup& kind : packed_calls(1, 20)) {
    setup s = kind;
    s.packed.assign(sequences, 0);
    s.packed_keys.clear();
    for (index_t& n : s.packed) n = static_cast<index_t>(random() % 9);
    s.packed[sequences / 3] = 200;
    s = completed(s);
    const numbers x = random_numbers(s);
    const dtype type = all_types[s.seed % 4];
    CAPTURE(describe(s, type));
    check_both(type, s, x);
    const results backward = run_backward(type, s, x);
    CHECK(first_difference(without_sums(one_by_one(type, s, x, true), s), without_sums(backward, s)) == "");
  }
}

TEST_CASE("packed: a bias whose gradient is summed a block of rows at a time") {
  // 12 MiB of float hold 1773 x 1773 sums, on the device 16 MiB 2048 x 2048.
  for (const op call : {op::full, op::local}) {
    if (on_device() && (call == op::full || !concerns(dtype::f32, {.call = call}))) continue;
    setup s{.call = call, .d = 2, .bias = bias_form::dense_tt, .win = {3, 4}};
    s.packed = {40, 1300, 0, 900, 3};
    s.packed_keys = {40, 2600, 5, 300, 3};
    if (call == op::local) {
      s.packed = {40, 2100, 0, 900, 3};
      s.packed_keys.clear();
    }
    s = completed(s);
    const numbers x = random_numbers(s);
    const results backward = run_backward(dtype::f32, s, x);
    if (!on_device()) CHECK(first_difference(backward, run_backward(dtype::f32, s, x, aft::cpu{.threads = 3})) == "");
    if (watched()) continue;  // numbers are other trees' matter
    const results each = one_by_one(dtype::f32, s, x, true);
    CHECK(first_difference(without_sums(each, s), without_sums(backward, s)) == "");
    // Calls' sums in another order: a few units of the largest.
    long double most = 0, off = 0;
    for (std::size_t i = 0; i < each.dw.size(); ++i) {
      most = std::max(most, std::abs(each.dw[i]));
      off = std::max(off, std::abs(each.dw[i] - backward.dw[i]));
    }
    CHECK(off <= 8 * 0x1p-23L * most);
  }
}

TEST_CASE("packed: a generated bias is asked for by sequence and by position in it") {
  if (on_device()) return;
  constexpr index_t total = 30, d = 8, H = 2, N = 4;
  const std::vector<std::int64_t> offsets{0, 17, 17, 22, total};
  std::vector<float> x(total * d), packed(total * d), alone(total * d), dk(total * d), dk_alone(total * d);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.3F * static_cast<float>(i));
  const auto f = [](index_t b, index_t h, index_t t, index_t s0, std::span<float> row) noexcept {
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = std::sin(static_cast<float>(11 * b + 5 * h + 3 * t) + static_cast<float>(s0) + static_cast<float>(i));
  };
  const auto in = [&](const std::vector<float>& of, index_t first, index_t count) {
    return aft::tensor_view<const float, 2>{of.data() + first * d, {count, d}};
  };
  const auto out = [&](std::vector<float>& of, index_t first, index_t count) {
    return aft::tensor_view<float, 2>{of.data() + first * d, {count, d}};
  };
  const auto none = aft::no_grad;
  for (const int threads : {1, 3})
    for (const bool per_batch : {false, true}) {
      const aft::cpu exec{.threads = threads};
      const aft::options opt{.causal = true,
                             .first_query = 2,
                             .query_offsets = aft::tensor_view<const std::int64_t, 1>{offsets.data(), {N + 1}}};
      const auto bias = per_batch ? aft::generated_bias{H, f, aft::per_batch} : aft::generated_bias{H, f};
      const auto all = in(x, 0, total);
      aft::full(exec, all, all, all, bias, out(packed, 0, total), opt);
      aft::full_backward(exec, all, all, all, bias, all, none, out(dk, 0, total), none, none, opt);
      for (index_t n = 0; n < N; ++n) {
        const index_t first = offsets[static_cast<std::size_t>(n)];
        const index_t count = offsets[static_cast<std::size_t>(n) + 1] - first;
        const auto of_n = [&](index_t, index_t h, index_t t, index_t s0, std::span<float> row) noexcept {
          f(per_batch ? n : 0, h, t, s0, row);
        };
        const aft::generated_bias own{H, of_n};
        const auto one = in(x, first, count);
        const aft::options plain{.causal = true, .first_query = 2};
        aft::full(exec, one, one, one, own, out(alone, first, count), plain);
        aft::full_backward(exec, one, one, one, own, one, none, out(dk_alone, first, count), none, none, plain);
      }
      CHECK(packed == alone);
      CHECK(dk == dk_alone);
    }
}
