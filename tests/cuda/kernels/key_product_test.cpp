// SPDX-License-Identifier: Apache-2.0
// The matrix product of aft/cuda/split_mma/keys.cuh without the fall-back behind it, like product_test.cpp.
#include <doctest/doctest.h>

#include <aft/cuda/device/runtime.cuh>
#include <aft/cuda/split_mma/keys.cuh>

#include "faulty_operands.hpp"
#include "key_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// Packs and multiplies for the gradient g (B, Tq, d), with lse and average rounded to float as a caller's are.
template <class Operand>
exact_gradients run_keys(inputs x, std::vector<float> g) {
  saved_inputs saved = saved_of(x);
  exact_gradients result = exact_keys(x, saved, g);
  std::vector<float> dv(result.elements.size(), std::nanf("")), dk(dv);
  const device_call<float> call = key_call(x, saved, g, dv, dk);
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

  take_results(result, x, rows, dv, dk);
  return result;
}

/// In units of 2^-24 of the scale.
key_verdict judge(const exact_gradients& r) {
  key_verdict all = judge_keys(r);
  all.dv *= 0x1p24L;
  all.dk *= 0x1p24L;
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
  for (const gradient_element& e : run_keys<Operand>(x, std::vector<float>(size, 0.0f)).elements) {
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
