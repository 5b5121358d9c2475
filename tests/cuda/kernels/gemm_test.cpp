// SPDX-License-Identifier: Apache-2.0
// The bfloat16 product of aft/cuda/bf16_gemm/tiles.cuh without the fall-back behind it: what it proves is right, what
// it cannot prove it flags, and nothing that a row does not see changes a bit of it.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <utility>

#include "gemm_inputs.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t place(const inputs& x, index_t b, index_t s, index_t c) {
  return static_cast<std::size_t>((b * x.Tk + s) * x.d + c);
}
bool same(const gemm_element& a, const gemm_element& b) {
  return a.flagged == b.flagged &&
         (a.flagged || std::bit_cast<std::uint32_t>(a.average) == std::bit_cast<std::uint32_t>(b.average));
}

}  // namespace

TEST_CASE_TEMPLATE("gemm: ordinary rows are proven and within the bound, whatever part of a tile they fill", Engine,
                   on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  struct shape {
    index_t B, Tq, Tk, d;
  };
  unsigned seed = 0;
  for (const shape& s : {shape{2, 70, 100, 20}, {1, 128, 64, 128}, {1, 1, 1, 16}, {3, 130, 129, 50}, {1, 33, 200, 1}})
    for (bool causal : {false, true}) {
      inputs x = gemm_inputs(++seed, s.B, s.Tq, s.Tk, s.d);
      x.causal = causal;
      const gemm_verdict all = judge_gemm(x, run_gemm<Engine>(x));
      CHECK(all.flagged == 0);
      CHECK(all.worst <= gemm_bound(x));
      // Operands of 8 bits cannot be better than this by chance.
      CHECK((all.worst > 0x1p-12L || s.Tk == 1));
      MESSAGE("largest error " << static_cast<double>(all.worst) << ", bound " << static_cast<double>(gemm_bound(x)));
    }
}

TEST_CASE("gemm: the bound is below the contract's eight units of bfloat16, up to the most keys that are taken") {
  inputs x;
  x.Tk = tuning::gemm_keys;
  CHECK(gemm_bound(x) + 0x1p-8L <= 8 * 0x1p-8L);
}

TEST_CASE_TEMPLATE("gemm: of logits at any scale, what is not flagged is right", Engine, on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  for (float scale : {0.0f, 0.1f, 3.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
    CAPTURE(scale);
    const inputs x = gemm_inputs(7, 2, 70, 100, 20, scale);
    const gemm_verdict all = judge_gemm(x, run_gemm<Engine>(x));
    CHECK(all.worst <= gemm_bound(x));
    if (scale < 5) CHECK(all.flagged == 0);
    if (scale > 900.0f) CHECK(all.flagged > all.count / 2);
    MESSAGE(all.flagged << " of " << all.count << " flagged at scale " << scale);
  }
}

TEST_CASE_TEMPLATE("gemm: a den that is small in its units, and keys far above the first, are flagged", Engine,
                   on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  // Each row's largest weight meets each column's smallest.
  for (float at : {2.0f, 10.0f, 20.0f, 60.0f}) {
    inputs x = gemm_inputs(3, 2, 70, 100, 20, 0);
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t s = 0; s < x.Tk; ++s) {
        const float sign = s % 2 == 0 ? -1.0f : 1.0f;
        x.bias(t, s) = sign * at;
        for (index_t b = 0; b < x.B; ++b)
          for (index_t c = 0; c < x.d; ++c) x.key(b, s, c) = -sign * at;
      }
    const gemm_verdict falling = judge_gemm(x, run_gemm<Engine>(x));
    // The first key is the largest: all pairs are e^-2at of the units, 2^-32 at e^-22.
    CHECK(falling.flagged == (at > 11 ? falling.count : 0));
    CHECK(falling.worst <= gemm_bound(x));
    for (float& k : x.k) k = -k;
    for (float& w : x.w) w = -w;
    // The first key is the smallest: the others are e^2at above it, 2^50 at e^34.
    const gemm_verdict rising = judge_gemm(x, run_gemm<Engine>(x));
    CHECK(rising.flagged == (at > 17 ? rising.count : 0));
    CHECK(rising.worst <= gemm_bound(x));
  }
}

TEST_CASE_TEMPLATE("gemm: values of ordinary size need no units, others are flagged", Engine, on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  for (float scale : {1e-12f, 1e-6f, 1e6f, 1e12f}) {
    const inputs x = gemm_inputs(5, 2, 70, 100, 20, 1, scale);
    const gemm_verdict all = judge_gemm(x, run_gemm<Engine>(x));
    CHECK(all.flagged == 0);
    CHECK(all.worst <= gemm_bound(x));
  }
  for (float scale : {1e-18f, 1e18f}) {
    const inputs x = gemm_inputs(5, 2, 70, 100, 20, 1, scale);
    const gemm_verdict all = judge_gemm(x, run_gemm<Engine>(x));
    CHECK(all.flagged == all.count);
  }
  inputs zeros = gemm_inputs(5, 2, 70, 100, 20);
  for (float& v : zeros.v) v = 0;
  for (const gemm_element& e : run_gemm<Engine>(zeros)) CHECK((!e.flagged && e.average == 0));
}

TEST_CASE_TEMPLATE("gemm: NaN and infinities flag what sees them, and no other element changes by a bit", Engine,
                   on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  for (bool causal : {false, true}) {
    inputs x = gemm_inputs(9, 2, 150, 150, 20);
    x.causal = causal;
    const auto clean = run_gemm<Engine>(x);
    x.key(0, 40, 3) = no_number;
    x.key(1, 140, 4) = infinity;
    x.v[place(x, 1, 42, 5)] = no_number;
    x.v[place(x, 0, 0, 6)] = -infinity;
    x.key(1, 0, 7) = no_number;  // the key that gives a column its unit
    x.key(1, 100, 8) = 5000;
    x.bias(11, 4) = no_number;
    x.bias(140, 45) = infinity;
    const auto got = run_gemm<Engine>(x);
    std::size_t i = 0;
    for (index_t b = 0; b < x.B; ++b)
      for (index_t t = 0; t < x.Tq; ++t)
        for (index_t c = 0; c < x.d; ++c, ++i) {
          const index_t from = b == 0 ? (c == 3 ? 40 : (c == 6 ? 0 : x.Tk))
                                      : (c == 4 ? 140 : (c == 5 ? 42 : (c == 7 ? 0 : (c == 8 ? 100 : x.Tk))));
          const bool sees = t == 11 || t == 140 || (from < x.Tk && (!causal || t >= from));
          CAPTURE(b);
          CAPTURE(t);
          CAPTURE(c);
          CHECK(got[i].flagged == sees);
          if (!sees) CHECK(same(got[i], clean[i]));
        }
  }
}

TEST_CASE_TEMPLATE("gemm: hidden keys hold anything, and the unit is that of the first visible one", Engine, on_warps,
                   on_warpgroups) {
  if (!has_engine<Engine>()) return;
  for (bool causal : {false, true}) {
    inputs x = gemm_inputs(21, 2, 90, 90, 20);
    x.causal = causal;
    gemm_changes changes;
    changes.lengths = {90, 41};
    changes.mask.assign(90, 1);
    for (index_t s : {0, 1, 2, 50, 51}) changes.mask[static_cast<std::size_t>(s)] = 0;
    const auto visible = [&](index_t b, index_t, index_t s) {
      return s < changes.lengths[static_cast<std::size_t>(b)] && changes.mask[static_cast<std::size_t>(s)] != 0;
    };
    const auto clean = run_gemm<Engine>(x, changes);
    const gemm_verdict all = judge_gemm(x, clean, visible);
    CHECK(all.flagged == 0);  // rows that see nothing too
    CHECK(all.worst <= gemm_bound(x));
    for (float value : {no_number, infinity, -infinity, 6e4f}) {
      for (index_t b = 0; b < x.B; ++b)
        for (index_t s = 0; s < x.Tk; ++s)
          for (index_t c = 0; c < x.d && !visible(b, 0, s); ++c) x.key(b, s, c) = x.v[place(x, b, s, c)] = value;
      const auto got = run_gemm<Engine>(x, changes);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(same(got[i], clean[i]));
    }
  }
}

TEST_CASE_TEMPLATE("gemm: -inf in the bias hides a pair, and in a key the key of that channel", Engine, on_warps,
                   on_warpgroups) {
  if (!has_engine<Engine>()) return;
  inputs x = gemm_inputs(22, 2, 90, 90, 20);
  for (index_t t = 0; t < x.Tq; ++t)
    for (index_t s = 0; s < x.Tk; ++s)
      if (t == 17 || (t % 5 == 1 && s % 3 == 0) || (t % 5 == 2 && s / 32 == 1)) x.bias(t, s) = -infinity;
  for (index_t s = 0; s < x.Tk; ++s) x.key(0, s, 3) = x.key(1, s % 7, 4) = -infinity;
  for (index_t s = 0; s < x.Tk; ++s) x.v[place(x, 0, s, 3)] = no_number;
  const auto got = run_gemm<Engine>(x);
  const gemm_verdict all = judge_gemm(x, got);
  CHECK(all.flagged == 0);
  CHECK(all.worst <= gemm_bound(x));
  for (index_t c = 0; c < x.d; ++c) CHECK(got[static_cast<std::size_t>(17 * x.d + c)].average == 0);
}

TEST_CASE_TEMPLATE("gemm: finite logits that are meant to hide count as 0 where anything else is seen", Engine,
                   on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  const float least = -std::numeric_limits<float>::max();
  for (float hiding : {-4100.0f, -1e9f, least})
    for (bool causal : {false, true}) {
      inputs x = gemm_inputs(23, 2, 90, 90, 20);
      x.causal = causal;
      for (index_t t = 0; t < x.Tq; ++t)
        for (index_t s = 0; s < x.Tk; ++s)
          if (t == 17 || (t % 5 == 1 && s % 3 == 0)) x.bias(t, s) = hiding;
      for (index_t s = 0; s < 9; ++s) x.key(0, s, 3) = x.key(1, s + 40, 4) = hiding;
      const auto got = run_gemm<Engine>(x);
      CHECK(judge_gemm(x, got).worst <= gemm_bound(x));
      std::size_t i = 0;
      for (index_t b = 0; b < x.B; ++b)
        for (index_t t = 0; t < x.Tq; ++t)
          for (index_t c = 0; c < x.d; ++c, ++i) {
            // What sees nothing else is not the product's to prove.
            const bool nothing_else = t == 17 || (causal && b == 0 && c == 3 && t < 9);
            CAPTURE(t);
            CHECK(got[i].flagged == nothing_else);
          }
    }
  // Beside logits that are as low themselves they count, and belong to the fold.
  inputs x = gemm_inputs(24, 1, 70, 70, 20);
  for (index_t s = 0; s < x.Tk; ++s) x.key(0, s, 3) = s % 2 == 0 ? -4096.0f : -4097.0f;
  for (index_t s = 0; s < x.Tk; ++s) x.bias(5, s) = s % 2 == 0 ? -4096.0f : -4097.0f;
  std::size_t i = 0;
  const auto got = run_gemm<Engine>(x);
  for (index_t t = 0; t < x.Tq; ++t)
    for (index_t c = 0; c < x.d; ++c, ++i) CHECK(got[i].flagged == (t == 5 || c == 3));
}

TEST_CASE_TEMPLATE("gemm: a causal row has the same bits whatever the future holds, and however long it is", Engine,
                   on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  for (float scale : {1.0f, 12.0f}) {
    inputs x = gemm_inputs(31, 2, 200, 200, 20, scale);
    x.causal = true;
    // A column whose unit comes later than its first key, and one whose keys are low to begin with.
    for (index_t s = 0; s < 70; ++s) x.key(0, s, 3) = -1e9f;
    for (index_t s = 0; s < 70; ++s) x.key(1, s, 4) = -4050.0f;
    // One whose future terms are 2^196 times those before: a zero beside them must not decide where a sum is cut.
    for (index_t s = 0; s < x.Tk; ++s) {
      x.key(0, s, 5) = s < 130 ? 0.0f : 34.0f;
      x.v[place(x, 0, s, 5)] = s < 130 ? std::ldexp(x.v[place(x, 0, s, 5)], -48) : 0x1p49f;
    }
    const auto whole = run_gemm<Engine>(x);
    for (index_t length : {1, 63, 64, 129}) {
      inputs prefix = x;
      prefix.Tq = prefix.Tk = length;
      prefix.k.clear();
      prefix.v.clear();
      prefix.w.clear();
      for (index_t b = 0; b < x.B; ++b)
        for (index_t s = 0; s < length; ++s)
          for (index_t c = 0; c < x.d; ++c) {
            prefix.k.push_back(x.k[place(x, b, s, c)]);
            prefix.v.push_back(x.v[place(x, b, s, c)]);
          }
      for (index_t t = 0; t < length; ++t)
        for (index_t s = 0; s < length; ++s) prefix.w.push_back(x.w[static_cast<std::size_t>(t * x.Tk + s)]);
      const auto got = run_gemm<Engine>(prefix);
      for (index_t b = 0; b < x.B; ++b)
        for (index_t t = 0; t < length; ++t)
          for (index_t c = 0; c < x.d; ++c)
            CHECK(same(got[static_cast<std::size_t>((b * length + t) * x.d + c)],
                       whole[static_cast<std::size_t>((b * x.Tq + t) * x.d + c)]));
    }
  }
}

TEST_CASE_TEMPLATE("gemm: an element of a batch has the bits that it has alone, and rows those that they have in parts",
                   Engine, on_warps, on_warpgroups) {
  if (!has_engine<Engine>()) return;
  const inputs x = gemm_inputs(41, 3, 300, 70, 50);
  const auto whole = run_gemm<Engine>(x);
  const auto parts = run_gemm<Engine>(x, {.rows_at_once = gemm_rows});
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(same(parts[i], whole[i]));
  for (index_t b = 0; b < x.B; ++b) {
    inputs one = x;
    one.B = 1;
    const auto size = static_cast<std::ptrdiff_t>(x.Tk * x.d);
    one.k.assign(x.k.begin() + b * size, x.k.begin() + (b + 1) * size);
    one.v.assign(x.v.begin() + b * size, x.v.begin() + (b + 1) * size);
    const auto got = run_gemm<Engine>(one);
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(same(got[i], whole[static_cast<std::size_t>(b * x.Tq * x.d) + i]));
  }
}

TEST_CASE_TEMPLATE("gemm: a chunk in the wrong place, or a column beside its own, shows", Engine, on_warps,
                   on_warpgroups) {
  if (!has_engine<Engine>()) return;
  const inputs x = gemm_inputs(51, 1, 70, 100, 20);
  const auto wrong = [&](const std::function<void(right_tile&)>& spoil) {
    const auto got = run_gemm<Engine>(x, {.between = [&](const gemm_plan& plan) { spoil(plan.right[0]); }});
    return judge_gemm(x, got).worst > gemm_bound(x);
  };
  CHECK_FALSE(wrong([](right_tile&) {}));
  const auto swap = [](right_tile& tile, int a, int b, int bytes) {
    std::swap_ranges(tile.operand + a, tile.operand + a + bytes, tile.operand + b);
  };
  CHECK(wrong([&](right_tile& tile) { swap(tile, chunk_at(3, 0), chunk_at(3, 1), chunk_bytes); }));
  CHECK(wrong([&](right_tile& tile) { swap(tile, chunk_at(2, 0), chunk_at(4, 0), operand_row_bytes); }));
  CHECK(wrong([&](right_tile& tile) { swap(tile, chunk_at(2, 0), chunk_at(3, 0), operand_row_bytes); }));
}

TEST_CASE("gemm: the two kernels agree within what tensor cores cut, and flag the same rows") {
  if (!has_engine<on_warpgroups>()) return;
  for (float scale : {1.0f, 4.0f}) {
    const inputs x = gemm_inputs(61, 2, 140, 200, 70, scale);
    const auto warps = run_gemm<on_warps>(x);
    const auto groups = run_gemm<on_warpgroups>(x);
    float largest = 0;
    for (float v : x.v) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < warps.size(); ++i) {
      CHECK(warps[i].flagged == groups[i].flagged);
      // Their operands are the same: what is left are the cuts, and how each divides.
      if (!warps[i].flagged) CHECK(std::abs(warps[i].average - groups[i].average) <= 2 * gemm_cuts(x) * largest);
    }
  }
}

#if defined(AFT_DEVICE_EMULATOR)

TEST_CASE("gemm: scratch grows with the sequence, not with its square, whatever heads and batch elements there are") {
  const auto scratch = [](index_t B, index_t T, index_t d, index_t heads, bool batched) {
    aft::problem p;
    p.B = B;
    p.Tq = p.Tk = T;
    p.d = p.hk = d;
    p.grid = {1, 1, T};
    p.bias.kind = aft::bias_kind::dense;
    p.bias.heads = heads;
    p.bias.batch = batched ? B : 1;
    p.k.type = p.v.type = p.y.type = aft::dtype::bf16;
    REQUIRE(is_gemm(p));
    const call_stream stream("gemm", nullptr);
    device_scratch memory(stream);
    const gemm_forward<float> job(p, memory, gemm_engine::warps);
    memory.allocate();
    return static_cast<index_t>(aft::emulator::memory().in_use);
  };
  constexpr index_t tiles = index_t{64} << 20;
  for (index_t T : {2000, 20000, 60000})
    for (const auto& shape : {std::pair<index_t, index_t>{64, 1}, {512, 32}, {512, 4}})
      for (bool batched : {false, true}) {
        const index_t d = shape.first, heads = shape.second;
        CAPTURE(T);
        CAPTURE(heads);
        // Eight bytes for each element of v where 32 channels are half filled, and 256 for each key and head; flags.
        const index_t elements = 2 * T * d;
        CHECK(scratch(2, T, d, heads, batched) <= tiles + 9 * elements + 2 * 256 * T * heads);
      }
}

#endif
