// SPDX-License-Identifier: Apache-2.0
// The matrix product of aft/cuda/split_mma/forward.cuh without the fall-back behind it: what it proves is right, what
// it cannot prove it flags, and each half of its operands is needed.
#include <doctest/doctest.h>

#include <aft/cuda/device/runtime.cuh>
#include <aft/cuda/split_mma/forward.cuh>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "faulty_operands.hpp"
#include "product_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

struct element {
  float average;
  bool flagged;
  long double exact, scale;  ///< scale: the largest |v| that the row sees
  float naive;
};

template <class Real>
void average_of_row(const inputs& x, index_t b, index_t t, index_t c, Real& average, Real& largest) {
  const auto at = [&](index_t s) { return static_cast<std::size_t>((b * x.Tk + s) * x.d + c); };
  const index_t end = x.causal ? std::min(t + 1, x.Tk) : x.Tk;
  Real top = -std::numeric_limits<Real>::infinity();
  const auto logit = [&](index_t s) {
    return static_cast<Real>(x.k[at(s)]) + static_cast<Real>(x.w[static_cast<std::size_t>(t * x.Tk + s)]);
  };
  for (index_t s = 0; s < end; ++s) top = std::max(top, logit(s));
  Real num = 0, den = 0;
  largest = 0;
  for (index_t s = 0; s < end; ++s) {
    const Real a = std::exp(logit(s) - top);
    num += a * static_cast<Real>(x.v[at(s)]);
    den += a;
    largest = std::max(largest, std::abs(static_cast<Real>(x.v[at(s)])));
  }
  average = num / den;
}

/// Packs and multiplies on the emulated device.
template <class Operand>
std::vector<element> run(inputs x) {
  const auto size = static_cast<std::size_t>(x.B * x.Tq * x.d);
  std::vector<float> out(size, std::nanf(""));
  device_call<float> call = dense_call(x);
  call.average = sequence_of(x, out, x.Tq);
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tq);
  std::vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  pack_plan keys = plan_pack(cols, x.Tk);
  std::vector<packed_tile> tiles(static_cast<std::size_t>(keys.count()));
  keys.tiles = tiles.data();
  const call_stream stream("product", nullptr);
  stream.launch(pack_keys_kernel<Operand>, (keys.count() + pack_warps - 1) / pack_warps, pack_threads, call, keys,
                keys.count());
  const product_plan plan = plan_product(rows, keys);
  stream.launch(product_kernel<Operand>, plan.blocks(), product_threads, call, plan, uniform_sums<key_sum<float>>{});

  std::vector<element> result;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        element e{};
        const index_t column = b * x.d + c;
        const std::uint32_t word = flags[static_cast<std::size_t>(flag_word(rows, t, column / tuning::lanes))];
        e.flagged = (word >> column % tuning::lanes & 1u) != 0;
        e.average = out[static_cast<std::size_t>((b * x.Tq + t) * x.d + c)];
        float unused = 0;
        average_of_row<long double>(x, b, t, c, e.exact, e.scale);
        average_of_row<float>(x, b, t, c, e.naive, unused);
        result.push_back(e);
      }
  return result;
}

struct verdict {
  std::size_t flagged = 0;
  long double worst = 0, naive = 0;  ///< errors of what is not flagged, in units of 2^-24 of its scale
};

verdict judge(const std::vector<element>& elements) {
  verdict all;
  for (const element& e : elements) {
    all.flagged += e.flagged ? 1 : 0;
    if (e.flagged) {
      CHECK(std::isnan(e.average));  // nothing was written
      continue;
    }
    const auto units = [&](float x) { return std::abs(x - e.exact) / e.scale * 0x1p24L; };
    all.worst =
        std::isnan(e.average) ? std::numeric_limits<long double>::infinity() : std::max(all.worst, units(e.average));
    all.naive = std::max(all.naive, units(e.naive));
  }
  return all;
}

/// The contract's, for max |v| just below a power of two.
long double contract(const verdict& v) {
  return 3 * v.naive + 8;
}

}  // namespace

TEST_CASE_TEMPLATE("product: ordinary rows are proven, and within the bound and the contract", Operand, tf32_operand,
                   half_operand) {
  for (unsigned seed = 1; seed <= 3; ++seed)
    for (bool causal : {false, true}) {
      inputs x = inputs::random(seed, 1, 1);
      x.causal = causal;
      const verdict all = judge(run<Operand>(x));
      CAPTURE(all.naive);
      CHECK(all.flagged == 0);
      CHECK(all.worst <= bound(x));
      CHECK(all.worst <= contract(all));
      MESSAGE("largest error " << static_cast<double>(all.worst) << ", naive " << static_cast<double>(all.naive));
    }
}

TEST_CASE_TEMPLATE("product: of logits at any scale, what is not flagged is right", Operand, tf32_operand,
                   half_operand) {
  for (float scale : {0.0f, 0.1f, 3.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
    CAPTURE(scale);
    const inputs x = inputs::random(7, scale, scale);
    const verdict all = judge(run<Operand>(x));
    CHECK(all.worst <= bound(x));
    CHECK(all.worst <= contract(all));
    const auto count = static_cast<std::size_t>(x.B * x.Tq * x.d);
    if (scale < 5) CHECK(all.flagged == 0);
    if (scale > 900.0f) CHECK(all.flagged > count / 2);
    MESSAGE(all.flagged << " of " << count << " flagged at scale " << scale);
  }
}

TEST_CASE("product: the range of float is TF32's, that of half is not, and both know it") {
  // Each row's largest weight meets each column's smallest in every tile: what is left is e^-2x of the units.
  for (float x : {2.0f, 20.0f, 60.0f}) {
    inputs in = inputs::random(3, 0, 0);
    for (index_t t = 0; t < in.Tq; ++t)
      for (index_t s = 0; s < in.Tk; ++s) {
        const float sign = s % 2 == 0 ? 1.0f : -1.0f;
        in.bias(t, s) = sign * x;
        for (index_t b = 0; b < in.B; ++b)
          for (index_t c = 0; c < in.d; ++c) in.key(b, s, c) = -sign * x;
      }
    const auto count = static_cast<std::size_t>(in.B * in.Tq * in.d);
    const verdict floats = judge(run<tf32_operand>(in));
    const verdict halves = judge(run<half_operand>(in));
    CHECK(floats.flagged == (x > 50 ? count : 0));
    CHECK(halves.flagged == (x > 10 ? count : 0));
    CHECK(floats.worst <= bound(in));
    CHECK(halves.worst <= bound(in));
    // With values of 2^-80 num would be among the denormal numbers where den is as small as that.
    for (float& v : in.v) v *= 0x1p-80f;
    CHECK(judge(run<tf32_operand>(in)).flagged == (x > 10 ? count : 0));
  }
}

TEST_CASE_TEMPLATE("product: values of any size are scaled by the columns of their tile", Operand, tf32_operand,
                   half_operand) {
  for (float scale : {1e-25f, 1e-6f, 1e6f, 1e35f}) {
    const inputs x = inputs::random(5, 1, 1, scale);
    const verdict all = judge(run<Operand>(x));
    CHECK(all.flagged == 0);
    CHECK(all.worst <= contract(all));
  }
  // Values that could be lost to denormal numbers are not the product's to prove.
  CHECK(judge(run<Operand>(inputs::random(5, 1, 1, 1e-40f))).flagged > 0);
}

TEST_CASE_TEMPLATE("product: NaN and infinities flag what sees them, and no other element changes by a bit", Operand,
                   tf32_operand, half_operand) {
  inputs x = inputs::random(9, 1, 1);
  const auto clean = run<Operand>(x);
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  x.key(0, 40, 3) = nan;
  x.key(1, 41, 4) = infinity;
  x.v[static_cast<std::size_t>((1 * x.Tk + 42) * x.d + 5)] = nan;
  x.v[static_cast<std::size_t>((0 * x.Tk + 43) * x.d + 6)] = -infinity;
  x.bias(11, 44) = nan;
  x.bias(12, 45) = infinity;
  const auto got = run<Operand>(x);
  std::size_t i = 0;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c, ++i) {
        const bool sees = t == 11 || t == 12 || (b == 0 && (c == 3 || c == 6)) || (b == 1 && (c == 4 || c == 5));
        CAPTURE(b);
        CAPTURE(t);
        CAPTURE(c);
        CHECK(got[i].flagged == sees);
        if (!sees) CHECK(got[i].average == clean[i].average);
      }
}

TEST_CASE_TEMPLATE("product: what a -inf in the bias hides from a row does not reach it", Operand, tf32_operand,
                   half_operand) {
  inputs x = inputs::random(21, 1, 1);
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  // Of each tile some rows see all keys, some a part, some none; key 70 holds NaN, and only rows 0 mod 5 look at it.
  for (index_t t = 0; t < x.Tq; ++t)
    for (index_t s = 0; s < x.Tk; ++s) {
      const bool hidden = (t % 5 == 1 && s % 3 == 0) || (t % 5 == 2 && s / 32 == 1) || (t % 5 != 0 && s == 70);
      if (hidden) x.bias(t, s) = -infinity;
    }
  const auto clean = run<Operand>(x);
  const verdict all = judge(clean);
  CHECK(all.flagged == 0);
  CHECK(all.worst <= contract(all));
  for (index_t c = 0; c < x.d; ++c) x.key(0, 70, c) = nan;
  for (index_t c = 0; c < x.d; ++c) x.v[static_cast<std::size_t>((1 * x.Tk + 70) * x.d + c)] = nan;
  const auto got = run<Operand>(x);
  std::size_t i = 0;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c, ++i) {
        CHECK(got[i].flagged == (t % 5 == 0));
        if (t % 5 != 0) CHECK(got[i].average == clean[i].average);
      }
}

TEST_CASE("product: a mistake in the operands shows") {
  const inputs x = inputs::random(1, 1, 1);
  const auto wrong = [&](const verdict& v) { return v.worst > bound(x); };
  CHECK(wrong(judge(run<no_cross_terms>(x))));
  CHECK(wrong(judge(run<unsplit>(x))));
  CHECK(wrong(judge(run<wrong_half>(x))));
  CHECK(wrong(judge(run<unswizzled>(x))));
}
