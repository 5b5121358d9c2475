// SPDX-License-Identifier: Apache-2.0
// The bfloat16 product that gives dk and dv (aft/cuda/bf16_gemm/key_epilogue.cuh) without the fall-back behind it: what
// it proves is right, what it cannot prove it flags, and nothing that a key is not seen by changes a bit of it.
#include <doctest/doctest.h>

#include <aft/cuda/launch/backward.cuh>

#include "gemm_inputs.hpp"
#include "key_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// Packs and multiplies for the gradient g (B, Tq, d), with lse and average rounded to float as a caller's are.
template <class Engine>
exact_gradients run_gemm_keys(inputs x, std::vector<float> g, index_t rows_at_once = 0) {
  saved_inputs saved = saved_of(x);
  exact_gradients result = exact_keys(x, saved, g);
  std::vector<float> dv(result.elements.size(), std::nanf("")), dk(dv);
  const device_call<float> call = key_call(x, saved, g, dv, dk);
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tk);
  std::vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  gemm_plan whole = plan_gemm(cols, x.Tk, x.Tq, x.Tq);
  if (rows_at_once > 0) whole.row_tiles = rows_at_once / gemm_rows;
  std::vector<left_tile> left(static_cast<std::size_t>(whole.row_tiles * whole.left_tiles));
  std::vector<right_tile> right(static_cast<std::size_t>(whole.right_count()));
  std::vector<float> row_units(static_cast<std::size_t>(whole.left_rows()));
  std::vector<query_column> units(static_cast<std::size_t>(whole.right_columns()));
  whole.left = left.data();
  whole.right = right.data();
  whole.row_units = row_units.data();
  whole.query_columns = units.data();
  const call_stream stream("gemm", nullptr);
  pack_gemm_queries(stream, call, whole);
  for (index_t first = 0; first < x.Tk; first += whole.row_tiles * gemm_rows)
    multiply_gemm<key_rows>(stream, call, plan_rows(whole, rows, first), {}, Engine::engine);

  take_results(result, x, rows, dv, dk);
  return result;
}

/// Of dv: both factors of a term are rounded, and what tensor cores cut; half of gemm_cuts, which counts two sums.
long double dv_bound(const inputs& x) {
  constexpr long double u = 0x1p-8L;
  inputs transposed = x;
  transposed.Tk = x.Tq;
  return 2 * u + u * u + gemm_cuts(transposed) / 2;
}
/// Of dk: v - m and o - m are at most twice the largest |v - o| where the centre m is one of the averages.
constexpr long double contract = 8 * 0x1p-8L;

bool same_bits(const gradient_element& a, const gradient_element& b) {
  return a.flagged == b.flagged && (a.flagged || (a.dv == b.dv && a.dk == b.dk));
}

}  // namespace

TEST_CASE_TEMPLATE("gemm keys: ordinary gradients are proven and right, at any scale, far from 0 too", Engine, on_warps,
                   on_warpgroups) {
  struct shape {
    index_t B, Tq, Tk, d;
  };
  unsigned seed = 0;
  for (const shape& s : {shape{2, 100, 70, 20}, {1, 64, 128, 128}, {3, 129, 130, 50}, {1, 200, 33, 1}})
    for (bool causal : {false, true})
      for (float scale : {1.0f, 1e-20f, 1e20f}) {
        inputs x = gemm_inputs(++seed, s.B, s.Tq, s.Tk, s.d);
        x.causal = causal;
        // Values that are nearly alike: with a centre of 0 their differences would be lost.
        if (seed % 2 == 0)
          for (float& v : x.v) v += 64.0f;
        const key_verdict all = judge_keys(run_gemm_keys<Engine>(x, incoming_of(x, scale)));
        CAPTURE(seed);
        CHECK(all.flagged == 0);  // keys beyond the last query see nothing and are exact zeros
        CHECK(all.dv <= dv_bound(x));
        CHECK(all.dk <= contract);
        CHECK(all.dv > 0x1p-12L);  // operands of 8 bits cannot be better than this by chance
        MESSAGE("largest errors " << static_cast<double>(all.dv) << " and " << static_cast<double>(all.dk));
      }
}

TEST_CASE_TEMPLATE("gemm keys: of logits at any scale, what is not flagged is right", Engine, on_warps, on_warpgroups) {
  for (float scale : {0.0f, 3.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
    CAPTURE(scale);
    const inputs x = gemm_inputs(13, 2, 90, 100, 20, scale);
    const key_verdict all = judge_keys(run_gemm_keys<Engine>(x, incoming_of(x, 1)));
    CHECK(all.dv <= dv_bound(x));
    CHECK(all.dk <= contract);
    if (scale < 5) CHECK(all.flagged == 0);
    if (scale > 900) CHECK(all.flagged > 0);
    MESSAGE(all.flagged << " of " << x.B * x.Tk * x.d << " flagged at scale " << scale);
  }
}

TEST_CASE_TEMPLATE("gemm keys: one weight far above those of the other queries loses no gradient", Engine, on_warps,
                   on_warpgroups) {
  // Key 5 weighs e^90 at query 0, which hands out nothing, and 1 elsewhere: in units of its row 2^-130.
  inputs x = gemm_inputs(15, 1, 70, 70, 20, 0.1f);
  x.bias(0, 5) = 90;
  std::vector<float> g = incoming_of(x, 1);
  for (index_t c = 0; c < x.d; ++c) g[static_cast<std::size_t>(c)] = 0;
  const exact_gradients got = run_gemm_keys<Engine>(x, g);
  const key_verdict all = judge_keys(got);
  CHECK(all.dv <= dv_bound(x));
  CHECK(all.dk <= contract);
  for (index_t c = 0; c < x.d; ++c) CHECK(got.elements[static_cast<std::size_t>(5 * x.d + c)].flagged);
  CHECK(all.flagged == static_cast<std::size_t>(x.d));
}

TEST_CASE_TEMPLATE("gemm keys: small sums of small values are right or flagged", Engine, on_warps, on_warpgroups) {
  // Half of the weights are e^-45, so that sums are 2^-65 of their units, and values lie near the least that are taken.
  for (float size : {0x1p-60f, 0x1p-85f, 0x1p-89f}) {
    inputs x = gemm_inputs(17, 1, 64, 64, 20, 0);
    for (index_t t = 1; t < x.Tq; t += 2)
      for (index_t s = 0; s < x.Tk; ++s) x.bias(t, s) = -45;
    for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = i % 3 == 0 ? size : -size;
    const key_verdict all = judge_keys(run_gemm_keys<Engine>(x, std::vector<float>(x.v.size(), 1.0f)));
    CAPTURE(size);
    CHECK(all.dv <= dv_bound(x));
    CHECK(all.dk <= contract);
  }
}

TEST_CASE_TEMPLATE("gemm keys: nothing upstream gives zeros, not flags; NaN flags the keys that its query sees", Engine,
                   on_warps, on_warpgroups) {
  for (bool causal : {false, true}) {
    inputs x = gemm_inputs(19, 2, 150, 150, 20);
    x.causal = causal;
    const auto size = static_cast<std::size_t>(x.B * x.Tq * x.d);
    for (const gradient_element& e : run_gemm_keys<Engine>(x, std::vector<float>(size, 0.0f)).elements) {
      CHECK(!e.flagged);
      CHECK(e.dv == 0);
      CHECK(e.dk == 0);
    }
    std::vector<float> g = incoming_of(x, 1);
    const auto clean = run_gemm_keys<Engine>(x, g);
    const auto parts = run_gemm_keys<Engine>(x, g, gemm_rows);
    g[static_cast<std::size_t>(30 * x.d + 7)] = std::nanf("");  // b = 0, t = 30, c = 7
    const auto got = run_gemm_keys<Engine>(x, g);
    for (std::size_t i = 0; i < got.elements.size(); ++i) {
      const auto key = static_cast<index_t>(i) / x.d;
      const bool sees = key < x.Tk && static_cast<index_t>(i) % x.d == 7 && (!causal || key <= 30);
      CHECK(got.elements[i].flagged == sees);
      if (!sees) CHECK(same_bits(got.elements[i], clean.elements[i]));
      CHECK(same_bits(parts.elements[i], clean.elements[i]));
    }
  }
}

TEST_CASE("gemm keys: a backward call's tiles and parts of a factorized bias stay within 64 MiB") {
  for (auto kind : {aft::bias_kind::dense, aft::bias_kind::factorized})
    for (index_t T : {1000, 20000, 60000}) {
      aft::backward_problem p;
      p.B = 1;
      p.Tq = p.Tk = T;
      p.d = p.hk = 128;
      p.grid = {1, 1, T};
      p.bias.kind = p.dbias.kind = kind;
      p.bias.heads = p.dbias.heads = p.dbias.u_heads = p.dbias.v_heads = 4;
      p.bias.batch = p.dbias.batch = 1;
      p.bias.rank = p.dbias.rank = 8;
      p.dbias.u.set = p.dbias.v.set = true;
      for (aft::field* f : {&p.q, &p.k, &p.v, &p.dy, &p.dq, &p.dk, &p.dv}) {
        f->set = true;
        f->type = aft::dtype::bf16;
      }
      REQUIRE(is_key_gemm(p));
      const call_stream stream("gemm", nullptr);
      device_room room(stream);
      backward<float>(p, stream, &room);  // which counts, and launches nothing
      room.allocate();
      const auto bytes = static_cast<index_t>(aft::emulator::memory().in_use);
      // Of each element: g and the average 4 bytes each and the rows' state 16; 8.4 for the keys of the float product
      // that finds them again, 4 for the queries of the bfloat16 product, 8 and 8 for both sides of the bias gradient,
      // 64 for each row and head of theirs; flags a bit for each of the rows and keys.
      const index_t elements = T * p.d;
      const index_t of_factors = kind == aft::bias_kind::factorized ? 2 * 4 * T * 8 * 4 : 0;
      CAPTURE(T);
      CHECK(bytes <= (index_t{64} << 20) + 53 * elements + of_factors);
    }
}
