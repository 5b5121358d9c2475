// SPDX-License-Identifier: Apache-2.0
// The matrix products of aft/cuda/tensor.cuh and tensor_keys.cuh without the fall-back behind them: what they prove is
// right, what they cannot prove they flag, and each half of their operands is needed.
#include <doctest/doctest.h>

#include <aft/cuda/runtime.cuh>
#include <aft/cuda/tensor.cuh>
#include <aft/cuda/tensor_keys.cuh>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace aft::cuda_impl;
using aft::index_t;
namespace emulator = aft::emulator;

namespace {

/// k (B, Tk, d), v the same, w (Tq, Tk).
struct inputs {
  index_t B = 2, Tq = 70, Tk = 100, d = 20;
  bool causal = false;
  std::vector<float> k, v, w;

  static inputs random(unsigned seed, float k_scale, float w_scale, float v_scale = 1) {
    inputs x;
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (index_t i = 0; i < x.B * x.Tk * x.d; ++i) x.k.push_back(k_scale * normal(engine));
    for (index_t i = 0; i < x.B * x.Tk * x.d; ++i) x.v.push_back(v_scale * normal(engine));
    for (index_t i = 0; i < x.Tq * x.Tk; ++i) x.w.push_back(w_scale * normal(engine));
    return x;
  }
  float& key(index_t b, index_t s, index_t c) { return k[static_cast<std::size_t>((b * Tk + s) * d + c)]; }
  float& bias(index_t t, index_t s) { return w[static_cast<std::size_t>(t * Tk + s)]; }
};

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
  device_call<float> call;
  call.B = x.B;
  call.Tq = x.Tq;
  call.Tk = x.Tk;
  call.d = call.hk = call.state_channels = x.d;
  call.positions = {1, 1, x.Tq};
  call.causal = x.causal;
  const auto sequence = [&](std::vector<float>& data, index_t T) {
    return scratch_tensor(data.data(), grid{1, 1, T}, x.d);
  };
  call.k = sequence(x.k, x.Tk);
  call.v = sequence(x.v, x.Tk);
  call.average = sequence(out, x.Tq);
  call.bias.kind = aft::bias_kind::dense;
  call.bias.w = {reinterpret_cast<std::byte*>(x.w.data()), aft::dtype::f32, true, 0, 0, x.Tk, 1};
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tq);
  std::vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  pack_plan keys = plan_pack(cols, x.Tk);
  std::vector<packed_tile> tiles(static_cast<std::size_t>(keys.count()));
  keys.tiles = tiles.data();
  const call_stream stream("product", nullptr);
  stream.launch(pack_kernel<Operand>, (keys.count() + pack_warps - 1) / pack_warps, pack_threads, call, keys,
                keys.count());
  const tensor_plan plan = plan_product(rows, keys);
  stream.launch(tensor_kernel<Operand>, plan.blocks(), tensor_threads, call, plan);

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

/// What docs/cuda.md derives, in the same units.
long double bound(const inputs& x) {
  return 110 + static_cast<long double>(x.Tk) / 16;
}
/// The contract's, for max |v| just below a power of two.
long double contract(const verdict& v) {
  return 3 * v.naive + 8;
}

/// Operands with a mistake planted.
struct no_cross_terms : half_operand {
  static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    // The last quarter of a tile's products are those of the high parts.
    constexpr int all = 4 * together;
    static thread_local int calls[tensor_threads];
    if (calls[thread_index()]++ % all >= all - together) half_operand::multiply(d, a, b);
  }
};
struct unsplit : tf32_operand {
  static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                   std::uint32_t (&lo)[4]) {
    tf32_operand::load(tile, row, half, step_index, hi, lo);
    for (std::uint32_t& x : lo) x = 0;
  }
};
struct wrong_half : half_operand {
  static void load(const std::byte* tile, int row, int half, int step_index, std::uint32_t (&hi)[4],
                   std::uint32_t (&lo)[4]) {
    half_operand::load(tile, row, 1 - half, step_index, hi, lo);
    if (half == 0) std::swap(hi[0], hi[2]);
  }
};
struct unswizzled : tf32_operand {
  static void store(std::byte* tile, int row, int group, const float (&x)[4]) {
    *reinterpret_cast<four_floats*>(tile + row * operand_row_bytes + group * chunk_bytes) = {{x[0], x[1], x[2], x[3]}};
  }
};

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

TEST_CASE("product: a mistake in the operands shows") {
  const inputs x = inputs::random(1, 1, 1);
  const auto wrong = [&](const verdict& v) { return v.worst > bound(x); };
  CHECK(wrong(judge(run<no_cross_terms>(x))));
  CHECK(wrong(judge(run<unsplit>(x))));
  CHECK(wrong(judge(run<wrong_half>(x))));
  CHECK(wrong(judge(run<unswizzled>(x))));
}

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
  device_call<float> call;
  call.B = x.B;
  call.Tq = x.Tq;
  call.Tk = x.Tk;
  call.d = call.hk = call.state_channels = x.d;
  call.positions = {1, 1, x.Tq};
  call.causal = x.causal;
  const auto sequence = [&](std::vector<float>& data, index_t T) {
    return scratch_tensor(data.data(), grid{1, 1, T}, x.d);
  };
  call.k = sequence(x.k, x.Tk);
  call.v = sequence(x.v, x.Tk);
  call.dv = sequence(dv, x.Tk);
  call.dk = sequence(dk, x.Tk);
  call.lse = sequence(lse, x.Tq);
  call.average = sequence(average, x.Tq);
  call.from_lse = true;
  call.g = g.data();
  call.bias.kind = aft::bias_kind::dense;
  call.bias.w = {reinterpret_cast<std::byte*>(x.w.data()), aft::dtype::f32, true, 0, 0, x.Tk, 1};
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
  const tensor_plan plan = plan_product(rows, packed);
  stream.launch(tensor_keys_kernel<Operand>, plan.blocks(), tensor_threads, call, plan);

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

std::vector<float> upstream_of(const inputs& x, float scale) {
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
    const auto join = [](long double& worst, float got, long double want, long double scale) {
      const long double error = std::isnan(got) ? std::numeric_limits<long double>::infinity() : std::abs(got - want);
      if (error > 0) worst = std::max(worst, error / scale * 0x1p24L);
    };
    join(all.dv, e.dv, e.exact_dv, r.scale_dv);
    join(all.dk, e.dk, e.exact_dk, r.scale_dk);
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
      const key_verdict all = judge(run_keys<Operand>(x, upstream_of(x, scale)));
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
    const key_verdict all = judge(run_keys<Operand>(x, upstream_of(x, 1)));
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
  std::vector<float> g = upstream_of(x, 1);
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
  const auto g = upstream_of(x, 1);
  CHECK(wrong(judge(run_keys<unsplit>(x, g))));
  CHECK(wrong(judge(run_keys<wrong_half>(x, g))));
  CHECK(wrong(judge(run_keys<unswizzled>(x, g))));
}
