// SPDX-License-Identifier: Apache-2.0
/// @file calls.cpp  Seeded calls of every operator, and a hash of the bits that each one writes.
///
/// A change that moves, renames or merges code has to leave every line of this program's output as it was;
/// scripts/golden compares two commits. The hashes are compared and never kept: they belong to one compiler and one
/// instruction set. Inputs are made from integers alone, so that no library function's rounding is part of them.
#include <aft/aft.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

namespace {

using aft::index_t;

/// SplitMix64: specified to the bit, unlike the distributions of <random>.
class numbers {
 public:
  explicit numbers(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  index_t below(index_t n) { return static_cast<index_t>(next() % static_cast<std::uint64_t>(n)); }
  bool chance(index_t one_in) { return below(one_in) == 0; }
  /// Multiples of 1/512 in [-scale, scale].
  double value(double scale) { return scale * (static_cast<double>(below(1025)) - 512.0) / 512.0; }

 private:
  std::uint64_t state_;
};

/// FNV-1a over the bytes of what a call wrote.
class hash {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) sum_ = (sum_ ^ bytes[i]) * 0x100000001b3u;
  }
  unsigned long long sum() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325u;
};

struct shape {
  index_t B, Tq, Tk, d, heads;
};

template <class T>
std::vector<T> random_values(numbers& random, index_t count, double scale) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = static_cast<T>(static_cast<float>(random.value(scale)));
  return values;
}

/// Everything that one call of a data type may read and write.
template <class T>
struct arrays {
  using W = aft::compute_t<T>;

  arrays(numbers& random, const shape& s, index_t taps)
      : sizes(s),
        filter_taps(taps),
        q(random_values<T>(random, s.B * s.Tq * s.d, 3)),
        k(random_values<T>(random, s.B * s.Tk * s.d, random.chance(6) ? 300 : 4)),
        v(random_values<T>(random, s.B * s.Tk * s.d, 2)),
        dy(random_values<T>(random, s.B * s.Tq * s.d, 1)),
        w(random_values<W>(random, s.Tq * s.Tk, random.chance(6) ? 200 : 3)),
        u(random_values<W>(random, s.Tq * 3, 1)),
        x(random_values<W>(random, s.Tk * 3, 1)),
        r(random_values<W>(random, s.heads * taps, 2)),
        y(dy.size()),
        average(dy.size()),
        dq(q.size()),
        dk(k.size()),
        dv(v.size()),
        lse(dy.size()),
        dw(w.size()),
        du(u.size()),
        dx(x.size()),
        dr(r.size()) {
    // Keys that no fast path serves, after which earlier rows must be what they were.
    for (index_t n = random.chance(3) ? 1 + random.below(4) : 0; n > 0; --n) {
      const float far[] = {1e30f, -1e30f, 6000, 900, -std::numeric_limits<float>::infinity()};
      k[static_cast<std::size_t>(random.below(static_cast<index_t>(k.size())))] = static_cast<T>(far[random.below(5)]);
    }
    if (random.chance(4)) {
      for (auto& weight : w) weight = random.chance(5) ? -std::numeric_limits<W>::infinity() : weight;
    }
  }

  aft::tensor_view<T, 3> queries(std::vector<T>& values) { return {values.data(), {sizes.B, sizes.Tq, sizes.d}}; }
  aft::tensor_view<T, 3> keys(std::vector<T>& values) { return {values.data(), {sizes.B, sizes.Tk, sizes.d}}; }
  aft::tensor_view<W, 3> sums() { return {lse.data(), {sizes.B, sizes.Tq, sizes.d}}; }
  auto dense(std::vector<W>& values) {
    return aft::dense_bias{aft::tensor_view<W, 2>{values.data(), {sizes.Tq, sizes.Tk}}};
  }
  auto factors(std::vector<W>& rows, std::vector<W>& columns) {
    return aft::factorized_bias{aft::tensor_view<W, 2>{rows.data(), {sizes.Tq, 3}},
                                aft::tensor_view<W, 2>{columns.data(), {sizes.Tk, 3}}};
  }
  aft::tensor_view<W, 2> filter(std::vector<W>& values) { return {values.data(), {sizes.heads, filter_taps}}; }

  unsigned long long bits() const {
    hash all;
    all.add(y);
    all.add(average);
    all.add(lse);
    all.add(dq);
    all.add(dk);
    all.add(dv);
    all.add(dw);
    all.add(du);
    all.add(dx);
    all.add(dr);
    return all.sum();
  }

  shape sizes;
  index_t filter_taps;
  std::vector<T> q, k, v, dy;
  std::vector<W> w, u, x, r;
  std::vector<T> y, average, dq, dk, dv;
  std::vector<W> lse, dw, du, dx, dr;
};

struct call_case {
  int kind;
  bool saved;
  aft::window window{1, 1};
};

/// Forward, with or without its saved rows, and backward from them or from nothing.
template <class T>
void call(const call_case& c, arrays<T>& a, aft::cpu cpu, aft::options options) {
  const auto q = a.queries(a.q), k = a.keys(a.k), v = a.keys(a.v), y = a.queries(a.y), dy = a.queries(a.dy);
  const auto dq = a.queries(a.dq), dk = a.keys(a.dk), dv = a.keys(a.dv);
  if (c.saved) {
    options.lse = a.sums();
    options.average = a.queries(a.average);
  }
  switch (c.kind) {
    case 0:
      aft::full(cpu, q, k, v, a.dense(a.w), y, options);
      aft::full_backward(cpu, q, k, v, a.dense(a.w), dy, dq, dk, dv, a.dense(a.dw), options);
      break;
    case 1:
      aft::full(cpu, q, k, v, a.factors(a.u, a.x), y, options);
      aft::full_backward(cpu, q, k, v, a.factors(a.u, a.x), dy, dq, dk, dv, a.factors(a.du, a.dx), options);
      break;
    case 2:
      aft::local(cpu, q, k, v, a.dense(a.w), c.window, y, options);
      aft::local_backward(cpu, q, k, v, a.dense(a.w), c.window, dy, dq, dk, dv, a.dense(a.dw), options);
      break;
    case 3:
      aft::local(cpu, q, k, v, a.factors(a.u, a.x), c.window, y, options);
      aft::local_backward(cpu, q, k, v, a.factors(a.u, a.x), c.window, dy, dq, dk, dv, a.factors(a.du, a.dx), options);
      break;
    case 4:
      aft::simple(cpu, q, k, v, y, options);
      aft::simple_backward(cpu, q, k, v, dy, dq, dk, dv, options);
      break;
    default:
      aft::conv(cpu, q, k, v, a.filter(a.r), y, options);
      aft::conv_backward(cpu, q, k, v, a.filter(a.r), dy, dq, dk, dv, a.filter(a.dr), options);
  }
}

template <class T>
void run(const char* type, std::uint64_t seed) {
  numbers random(seed);
  const char* const names[] = {"full", "full_uv", "local", "local_uv", "simple", "conv"};
  call_case c{static_cast<int>(random.below(6)), random.chance(2)};
  shape s{1 + random.below(3), 1 + random.below(90), 0, 0, 1 + random.below(5)};
  if (random.chance(5)) s.Tq += 150;
  s.Tk = s.Tq;
  if (random.chance(3)) s.Tk = 1 + random.below(120);
  s.d = s.heads * (1 + random.below(random.chance(3) ? 60 : 12));
  const index_t before = random.below(random.chance(3) ? 80 : 9), after = random.below(9);
  c.window = aft::window{before, after};
  arrays<T> a(random, s, 1 + 2 * random.below(6));

  aft::options options;
  options.causal = random.chance(3);
  const aft::gate gates[] = {aft::gate::sigmoid, aft::gate::none, aft::gate::relu,
                             aft::gate::tanh,    aft::gate::silu, aft::gate::identity};
  options.gate_fn = gates[random.chance(2) ? 0 : random.below(6)];
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(s.B));
  if (random.chance(4)) {
    for (auto& length : lengths) length = random.below(s.Tk + 1);
    options.key_lengths = aft::tensor_view<const std::int64_t, 1>{lengths.data(), {s.B}};
  }
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(s.Tq * s.Tk));
  if (c.kind < 2 && random.chance(4)) {
    for (auto& seen : mask) seen = random.chance(3) ? 0 : 1;
    options.mask = aft::tensor_view<const std::uint8_t, 2>{mask.data(), {s.Tq, s.Tk}};
  }
  std::string what = std::string(names[c.kind]) + " " + type + " seed " + std::to_string(seed);
  try {
    call(c, a, aft::cpu{1 + static_cast<int>(seed % 2)}, options);
    std::printf("%s %016llx\n", what.c_str(), a.bits());
  } catch (const std::exception& error) {
    std::printf("%s refused: %s\n", what.c_str(), error.what());
  }
}

}  // namespace

int main() {
  for (std::uint64_t seed = 0; seed < 400; ++seed) run<float>("float", seed);
  for (std::uint64_t seed = 0; seed < 200; ++seed) run<double>("double", 1000 + seed);
  for (std::uint64_t seed = 0; seed < 200; ++seed) run<aft::bfloat16>("bfloat16", 2000 + seed);
  for (std::uint64_t seed = 0; seed < 100; ++seed) run<aft::half>("half", 3000 + seed);
}
