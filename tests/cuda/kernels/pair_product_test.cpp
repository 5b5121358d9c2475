// SPDX-License-Identifier: Apache-2.0
// The matrix product of aft/cuda/split_mma/pairs.cuh without the fall-back behind it, like product_test.cpp.
#include <doctest/doctest.h>

#include <aft/cuda/launch/pair_gradient.cuh>

#include "faulty_operands.hpp"
#include "key_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// dw of one pair; scale: the sum of a |g| (|v - m| + |o - m|), m the centre that the product takes.
struct pair_element {
  float dw;
  bool flagged, visible;
  long double exact, scale;
};

std::vector<float> centres_of(const inputs& x, device_call<float>& call, const call_stream& stream) {
  std::vector<float> centres(static_cast<std::size_t>(x.B * x.d));
  stream.launch(pair_centres_kernel<float>, (x.B * x.d + warp_size - 1) / warp_size, centre_threads, call,
                centres.data());
  return centres;
}

/// Packs and multiplies for the gradient g (B, Tq, d), with lse and average rounded to float as a caller's are.
template <class Operand>
std::vector<pair_element> run_pairs(inputs x, std::vector<float> g, int slices = 1) {
  saved_inputs saved = saved_of(x);
  std::vector<float> dw(static_cast<std::size_t>(x.Tq * x.Tk), std::nanf(""));
  const auto at = [&](index_t b, index_t T, index_t t, index_t c) {
    return static_cast<std::size_t>((b * T + t) * x.d + c);
  };
  device_call<float> call = dense_call(x);
  call.lse = sequence_of(x, saved.lse, x.Tq);
  call.average = sequence_of(x, saved.average, x.Tq);
  call.from_lse = true;
  call.g = g.data();

  const call_stream stream("product", nullptr);
  std::vector<float> centres = centres_of(x, call, stream);
  const columns cols{1, x.B, x.d, false};
  pair_product plan;
  plan.queries = plan_side(cols, x.Tq);
  plan.keys = plan_side(cols, x.Tk);
  std::vector<pair_tile> tiles[2];
  std::vector<int> exponents[2];
  pair_side* const sides[2] = {&plan.queries, &plan.keys};
  for (int i : {0, 1}) {
    pair_side& side = *sides[i];
    tiles[i].resize(static_cast<std::size_t>(side.tile_count()));
    exponents[i].resize(static_cast<std::size_t>(side.row_count()));
    side.tiles = tiles[i].data();
    side.exponents = exponents[i].data();
    side.centres = centres.data();
    if (i == 0) pack_pairs<true>(stream, call, side);
    if (i == 1) pack_pairs<false>(stream, call, side);
  }
  plan.row_tiles = plan.queries.row_tiles;
  plan.key_tiles = plan.keys.row_tiles;
  plan.pairs.cols = cols;
  plan.pairs.count = 1;
  plan.pairs.r1 = x.Tq;
  plan.pairs.row_tiles = (x.Tq + tuning::pairs - 1) / tuning::pairs;
  plan.pairs.key_tiles = plan.key_tiles * (pair_rows / tuning::pairs);
  plan.pairs.step = pair_rows;
  plan.pairs.scratch = dw.data();
  plan.pairs.width = x.Tk;
  std::vector<std::uint32_t> flags(static_cast<std::size_t>(plan.pairs.row_tiles * plan.pairs.key_tiles), 77);
  plan.pairs.flags = flags.data();
  plan.slices = slices;
  std::vector<float> partials(static_cast<std::size_t>(slices * plan.blocks() * pair_rows * pair_rows));
  plan.partials = partials.data();
  stream.launch(pair_product_kernel<Operand>, plan.blocks() * slices, product_threads, call, plan);
  if (slices > 1) stream.launch(pair_slices_kernel<Operand>, plan.blocks(), product_threads, call, plan);

  std::vector<pair_element> result;
  for (index_t t = 0; t < x.Tq; ++t)
    for (index_t s = 0; s < x.Tk; ++s) {
      pair_element e{};
      e.dw = dw[static_cast<std::size_t>(t * x.Tk + s)];
      e.flagged = flags[static_cast<std::size_t>(t / tuning::pairs * plan.pairs.key_tiles + s / tuning::pairs)] != 0;
      e.visible = !x.causal || s <= t;
      for (index_t b = 0; e.visible && b < x.B; ++b)
        for (index_t c = 0; c < x.d; ++c) {
          const auto row = at(b, x.Tq, t, c);
          const long double m = centres[static_cast<std::size_t>(b * x.d + c)];
          const long double v = x.v[at(b, x.Tk, s, c)], o = saved.average[row];
          const long double ag =
              std::exp(static_cast<long double>(x.key(b, s, c)) + x.bias(t, s) - saved.lse[row]) * g[row];
          e.exact += ag * (v - o);
          e.scale += std::abs(ag) * (std::abs(v - m) + std::abs(o - m));
        }
      result.push_back(e);
    }
  return result;
}

/// docs/cuda.md: a tile has 16 columns here.
long double pair_bound(const inputs& x) {
  return 134 + static_cast<long double>(x.B * x.d) / 16;
}

struct pair_verdict {
  std::size_t flagged = 0;
  long double worst = 0;  ///< of what is not flagged, in units of 2^-24 of its own scale
};

pair_verdict judge(const std::vector<pair_element>& elements) {
  pair_verdict all;
  for (const pair_element& e : elements) {
    all.flagged += e.flagged ? 1 : 0;
    if (!e.visible) CHECK(e.dw == 0);
    if (e.flagged || !e.visible) continue;
    const long double error =
        std::isnan(e.dw) ? std::numeric_limits<long double>::infinity() : std::abs(e.dw - e.exact);
    // A result below the normal numbers rounds to a multiple of the least.
    if (error > 0x1p-148L) all.worst = std::max(all.worst, error / e.scale * 0x1p24L);
  }
  return all;
}

}  // namespace

TEST_CASE("pair product: ordinary gradients are proven, and every pair is within the bound") {
  for (unsigned seed = 1; seed <= 3; ++seed)
    for (bool causal : {false, true})
      for (float scale : {1.0f, 1e-20f, 1e20f}) {
        inputs x = inputs::random(seed, 1, 1);
        x.causal = causal;
        const pair_verdict all = judge(run_pairs<tf32_operand>(x, incoming_of(x, scale)));
        // Causal, the first row has one key, whose value is average and centre: nothing but zeros, which may be a sum
        // that has lost everything.
        const std::size_t first = causal ? std::size_t{tuning::pairs} * tuning::pairs : 0;
        CHECK(all.flagged <= first);
        CHECK(all.worst <= pair_bound(x));
        MESSAGE("largest error " << static_cast<double>(all.worst));
      }
}

TEST_CASE("pair product: columns in slices, empty ones too, are the same sums") {
  for (bool causal : {false, true}) {
    inputs x = inputs::random(4, 1, 1);
    x.causal = causal;
    const auto g = incoming_of(x, 1);
    const auto whole = run_pairs<tf32_operand>(x, g);
    // Of three tiles of columns any slices are added in the same order.
    static_assert(pair_columns == 16);
    REQUIRE(x.B * x.d == 40);
    for (int slices : {2, 3, 7}) {
      const auto sliced = run_pairs<tf32_operand>(x, g, slices);
      CHECK(judge(sliced).worst <= pair_bound(x));
      CHECK(judge(sliced).flagged == judge(whole).flagged);
      for (std::size_t i = 0; i < whole.size(); ++i) CHECK(sliced[i].dw == whole[i].dw);
    }
  }
  // The paper's images, one head over a batch of 256; a sequence of 3072; 16 heads of 24 channels.
  CHECK(slices_of(4 * 4, 256 * 384 / 16) == 32);
  CHECK(slices_of(48 * 48, 32 * 512 / 16) == 1);
  CHECK(slices_of(16 * 4 * 4, 256 * 24 / 16) == 2);
  CHECK(slices_of(1, 1) == 1);
  CHECK(slices_of(0, 0) == 1);
}

TEST_CASE("pair product: slices are the same for a batch element alone and in its batch") {
  const auto slices = [](index_t B, bool own_bias) {
    aft::backward_problem p;
    p.B = B;
    p.Tq = p.Tk = 1024;
    p.d = p.hk = 4096;
    p.grid = {1, 1, 1024};
    p.bias.kind = p.dbias.kind = aft::bias_kind::dense;
    p.bias.heads = 2;
    p.bias.batch = own_bias ? B : 1;
    const call_stream stream("product", nullptr);
    device_scratch memory(stream);
    return pair_backward<float>(p, p.Tq, memory).slices();
  };
  CHECK(slices(1, true) == slices(2, true));
  CHECK(slices(1, true) == slices(7, true));
  CHECK(slices(64, false) == 1);
}

TEST_CASE("pair product: values far from 0 do not cancel") {
  inputs x = inputs::random(5, 1, 1);
  for (float& v : x.v) v += 1000;
  const pair_verdict all = judge(run_pairs<tf32_operand>(x, incoming_of(x, 1)));
  CHECK(all.flagged == 0);
  CHECK(all.worst <= pair_bound(x));
}

TEST_CASE("pair product: of logits and values at any scale, what is not flagged is right") {
  for (float scale : {0.0f, 3.0f, 10.0f, 30.0f, 100.0f, 1000.0f})
    for (float values : {1e-25f, 1.0f, 1e25f}) {
      CAPTURE(scale);
      CAPTURE(values);
      const inputs x = inputs::random(13, scale, scale, values);
      const pair_verdict all = judge(run_pairs<tf32_operand>(x, incoming_of(x, 1)));
      CHECK(all.worst <= pair_bound(x));
      // Both sides have a factor of the values' size, so that their range is half of float's.
      if (scale < 5 && values == 1.0f) CHECK(all.flagged == 0);
      MESSAGE(all.flagged << " of " << x.Tq * x.Tk << " flagged at scale " << scale << ", values " << values);
    }
}

TEST_CASE("pair product: nothing upstream gives zeros, not flags") {
  const inputs x = inputs::random(19, 1, 1);
  const auto size = static_cast<std::size_t>(x.B * x.Tq * x.d);
  for (const pair_element& e : run_pairs<tf32_operand>(x, std::vector<float>(size, 0.0f))) {
    CHECK(!e.flagged);
    CHECK(e.dw == 0);
  }
}

TEST_CASE("pair product: NaN flags the pairs that see it, and no other changes by a bit") {
  inputs x = inputs::random(9, 1, 1);
  std::vector<float> g = incoming_of(x, 1);
  const auto clean = run_pairs<tf32_operand>(x, g);
  const float nan = std::nanf("");
  g[static_cast<std::size_t>(30 * x.d + 7)] = nan;  // query 30
  x.bias(50, 90) = std::numeric_limits<float>::infinity();
  const auto got = run_pairs<tf32_operand>(x, g);
  std::size_t i = 0;
  for (index_t t = 0; t < x.Tq; ++t)
    for (index_t s = 0; s < x.Tk; ++s, ++i) {
      // Row 50 has an lse of infinity, that is weights of 0 or NaN.
      if (t / tuning::pairs == 30 / tuning::pairs || t / tuning::pairs == 50 / tuning::pairs) {
        if (t == 30) CHECK(got[i].flagged);
      } else {
        CHECK(!got[i].flagged);
        CHECK(got[i].dw == clean[i].dw);
      }
      if (t / tuning::pairs == 30 / tuning::pairs && t != 30) CHECK(got[i].dw == clean[i].dw);
    }
}

TEST_CASE("pair product: a mistake in the operands shows") {
  const inputs x = inputs::random(1, 1, 1);
  const auto g = incoming_of(x, 1);
  CHECK(judge(run_pairs<unsplit>(x, g)).worst > pair_bound(x));
  CHECK(judge(run_pairs<swapped_halves>(x, g)).worst > pair_bound(x));
}
