// SPDX-License-Identifier: Apache-2.0
// The matrix product of aft/cuda/split_mma/keys.cuh without the fall-back behind it, like product_test.cpp.
#include <doctest/doctest.h>

#include <aft/cuda/device/runtime.cuh>
#include <aft/cuda/split_mma/keys.cuh>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "faulty_operands.hpp"
#include "product_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// dv and dk of one key and channel.
struct key_element {
  float dv, dk;
  bool flagged;
  long double exact_dv, exact_dk;
};

struct key_results {
  std::vector<key_element> elements;
  long double scale_dv = 0, scale_dk = 0;  ///< the largest sums of absolute terms, as in tolerance.hpp
};

/// Packs and multiplies for the gradient g (B, Tq, d), with lse and average rounded to float as a caller's are.
template <class Operand>
key_results run_keys(inputs x, std::vector<float> g) {
  const auto queries = static_cast<std::size_t>(x.B * x.Tq * x.d), keys = static_cast<std::size_t>(x.B * x.Tk * x.d);
  std::vector<float> lse(queries), average(queries), dv(keys, std::nanf("")), dk(dv);
  key_results result;
  std::vector<long double> exact_dv(keys), exact_dk(keys), terms_dv(keys), terms_dk(keys);
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        const auto row = static_cast<std::size_t>((b * x.Tq + t) * x.d + c);
        const index_t end = x.causal ? std::min(t + 1, x.Tk) : x.Tk;
        long double top = -std::numeric_limits<long double>::infinity(), num = 0, den = 0;
        const auto logit = [&](index_t s) { return static_cast<long double>(x.key(b, s, c)) + x.bias(t, s); };
        for (index_t s = 0; s < end; ++s) top = std::max(top, logit(s));
        for (index_t s = 0; s < end; ++s) {
          den += std::exp(logit(s) - top);
          num += std::exp(logit(s) - top) * x.v[static_cast<std::size_t>((b * x.Tk + s) * x.d + c)];
        }
        lse[row] = static_cast<float>(top + std::log(den));
        average[row] = static_cast<float>(num / den);
        for (index_t s = 0; s < end; ++s) {
          const auto key = static_cast<std::size_t>((b * x.Tk + s) * x.d + c);
          const long double ag = std::exp(logit(s) - lse[row]) * g[row];
          const long double apart = static_cast<long double>(x.v[key]) - average[row];
          exact_dv[key] += ag;
          exact_dk[key] += ag * apart;
          terms_dv[key] += std::abs(ag);
          terms_dk[key] += std::abs(ag * apart);
        }
      }
  device_call<float> call = dense_call(x);
  call.dv = sequence_of(x, dv, x.Tk);
  call.dk = sequence_of(x, dk, x.Tk);
  call.lse = sequence_of(x, lse, x.Tq);
  call.average = sequence_of(x, average, x.Tq);
  call.from_lse = true;
  call.g = g.data();
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tk);
  std::vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  pack_plan packed = plan_pack(cols, x.Tq);
  std::vector<packed_tile> tiles(static_cast<std::size_t>(packed.count()));
  packed.tiles = tiles.data();
  const call_stream stream("product", nullptr);
  stream.launch(pack_queries_kernel<Operand>, (packed.count() + pack_warps - 1) / pack_warps, pack_threads, call,
                packed, packed.count());
  const product_plan plan = plan_product(rows, packed);
  stream.launch(key_product_kernel<Operand>, plan.blocks(), product_threads, call, plan,
                uniform_sums<query_sum<float>>{});

  for (index_t b = 0; b < x.B; ++b)
    for (index_t s = 0; s < x.Tk; ++s)
      for (index_t c = 0; c < x.d; ++c) {
        const auto i = static_cast<std::size_t>((b * x.Tk + s) * x.d + c);
        const index_t column = b * x.d + c;
        const std::uint32_t word = flags[static_cast<std::size_t>(flag_word(rows, s, column / tuning::lanes))];
        result.elements.push_back({dv[i], dk[i], (word >> column % tuning::lanes & 1u) != 0, exact_dv[i], exact_dk[i]});
        result.scale_dv = std::max(result.scale_dv, terms_dv[i]);
        result.scale_dk = std::max(result.scale_dk, terms_dk[i]);
      }
  return result;
}

std::vector<float> incoming_of(const inputs& x, float scale) {
  std::mt19937 engine(17);
  std::normal_distribution<float> normal;
  std::vector<float> g;
  for (index_t i = 0; i < x.B * x.Tq * x.d; ++i) g.push_back(scale * normal(engine));
  return g;
}

struct key_verdict {
  std::size_t flagged = 0;
  long double dv = 0, dk = 0;  ///< largest errors of what is not flagged, in units of 2^-24 of the scale
};

key_verdict judge(const key_results& r) {
  key_verdict all;
  for (const key_element& e : r.elements) {
    all.flagged += e.flagged ? 1 : 0;
    if (e.flagged) {
      CHECK((std::isnan(e.dv) && std::isnan(e.dk)));
      continue;
    }
    const auto merge_into = [](long double& worst, float got, long double want, long double scale) {
      const long double error = std::isnan(got) ? std::numeric_limits<long double>::infinity() : std::abs(got - want);
      if (error > 0) worst = std::max(worst, error / scale * 0x1p24L);
    };
    merge_into(all.dv, e.dv, e.exact_dv, r.scale_dv);
    merge_into(all.dk, e.dk, e.exact_dk, r.scale_dk);
  }
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("key product: ordinary gradients are proven and right, at any scale", Operand, tf32_operand,
                   half_operand) {
  for (bool causal : {false, true})
    for (float scale : {1.0f, 1e-20f, 1e20f}) {
      inputs x = inputs::random(11, 1, 1);
      x.causal = causal;
      const key_verdict all = judge(run_keys<Operand>(x, incoming_of(x, scale)));
      // Keys beyond the last query see nothing and are exact zeros.
      CHECK(all.flagged == 0);
      CHECK(all.dv <= bound(x));
      CHECK(all.dk <= 2 * bound(x));  // |v| and |o| where the terms have |v - o|
      MESSAGE("largest errors " << static_cast<double>(all.dv) << " and " << static_cast<double>(all.dk));
    }
}

TEST_CASE_TEMPLATE("key product: of logits at any scale, what is not flagged is right", Operand, tf32_operand,
                   half_operand) {
  for (float scale : {0.0f, 3.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
    CAPTURE(scale);
    const inputs x = inputs::random(13, scale, scale);
    const key_verdict all = judge(run_keys<Operand>(x, incoming_of(x, 1)));
    CHECK(all.dv <= bound(x));
    CHECK(all.dk <= 2 * bound(x));
    // Signs may cancel to anything.
    if (scale < 5) CHECK(all.flagged <= static_cast<std::size_t>(x.B * x.Tk * x.d) / 100);
    MESSAGE(all.flagged << " of " << x.B * x.Tk * x.d << " flagged at scale " << scale);
  }
}

TEST_CASE_TEMPLATE("key product: nothing upstream gives zeros, not flags; NaN flags its own columns", Operand,
                   tf32_operand, half_operand) {
  const inputs x = inputs::random(19, 1, 1);
  const auto size = static_cast<std::size_t>(x.B * x.Tq * x.d);
  for (const key_element& e : run_keys<Operand>(x, std::vector<float>(size, 0.0f)).elements) {
    CHECK(!e.flagged);
    CHECK(e.dv == 0);
    CHECK(e.dk == 0);
  }
  std::vector<float> g = incoming_of(x, 1);
  const auto clean = run_keys<Operand>(x, g);
  g[static_cast<std::size_t>(30 * x.d + 7)] = std::nanf("");  // b = 0, t = 30, c = 7
  const auto got = run_keys<Operand>(x, g);
  for (std::size_t i = 0; i < got.elements.size(); ++i) {
    const bool sees = i < got.elements.size() / 2 && i % static_cast<std::size_t>(x.d) == 7;
    CHECK(got.elements[i].flagged == sees);
    if (!sees) CHECK(got.elements[i].dv == clean.elements[i].dv);
    if (!sees) CHECK(got.elements[i].dk == clean.elements[i].dk);
  }
}

TEST_CASE("key product: a mistake in the operands shows") {
  const inputs x = inputs::random(1, 1, 1);
  const auto wrong = [&](const key_verdict& v) { return v.dv > bound(x) && v.dk > 2 * bound(x); };
  const auto g = incoming_of(x, 1);
  CHECK(wrong(judge(run_keys<unsplit>(x, g))));
  CHECK(wrong(judge(run_keys<wrong_half>(x, g))));
  CHECK(wrong(judge(run_keys<unswizzled>(x, g))));
}
