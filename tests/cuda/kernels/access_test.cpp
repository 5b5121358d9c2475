// SPDX-License-Identifier: Apache-2.0
// Calls whose tensors are lines (aft/cuda/tensor/access.cuh) against the same calls in memory of any layout: every bit
// of every result is the same, and where one access of a line would not be aligned or not be of one head, none is made.
#include <doctest/doctest.h>

#include <aft/cuda/launch/backward.cuh>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using aft::dtype;
using aft::index_t;
using namespace aft::cuda_impl;
namespace emulator = aft::emulator;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// How a tensor lies in memory. `behind`: elements before its first. `after_two`: elements after every second row, so
/// that positions do not follow each other evenly.
struct layout {
  const char* name;
  index_t behind, between_rows, between_channels;
  index_t after_two = 0;
};
constexpr layout lines{"lines", 0, 0, 1};
constexpr layout wide_lines{"lines with room between them", 16, 16, 1};
constexpr layout others[] = {
    {"a base that is not aligned", 1, 0, 1}, {"rows that are not aligned", 0, 1, 1}, {"channels apart", 0, 0, 2}};
constexpr layout uneven{"a grid whose rows have room between them", 0, 0, 1, 3};

/// (B, T, channels) of numbers, in memory that is aligned as a device's allocations are.
class stored {
 public:
  stored(dtype type, index_t B, index_t T, index_t channels, const layout& how)
      : type_(type), B_(B), T_(T), channels_(channels), how_(how) {
    const index_t n = how.behind + B * batch_step();
    memory_.assign(static_cast<std::size_t>(n * size() / 16 + 1), four_words{{~0u, ~0u, ~0u, ~0u}});
  }
  void write(const std::vector<float>& x) {
    std::size_t i = 0;
    each([&](std::byte* at) { store<float>(at, type_, 0, x[i++]); });
  }
  /// Bits, padding and all that lies between the elements left out.
  void append_to(std::vector<std::uint32_t>& bits) {
    each([&](std::byte* at) {
      std::uint32_t word = 0;
      std::memcpy(&word, at, static_cast<std::size_t>(size()));
      bits.push_back(word);
    });
  }
  aft::field field() {
    std::byte* const first = data() + how_.behind * size();
    const index_t two = 2 * step() + how_.after_two;
    return {first, type_, true, batch_step(), {batch_step(), two, step()}, how_.between_channels};
  }

 private:
  index_t size() const { return type_ == dtype::f32 ? 4 : 2; }
  index_t step() const { return channels_ * how_.between_channels + how_.between_rows; }
  index_t batch_step() const { return T_ * step() + T_ / 2 * how_.after_two; }
  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }
  template <class F>
  void each(const F& f) {
    for (index_t b = 0; b < B_; ++b)
      for (index_t t = 0; t < T_; ++t)
        for (index_t c = 0; c < channels_; ++c) {
          const index_t row = b * batch_step() + t * step() + t / 2 * how_.after_two;
          f(data() + (how_.behind + row + c * how_.between_channels) * size());
        }
  }

  dtype type_;
  index_t B_, T_, channels_;
  layout how_;
  std::vector<four_words> memory_;
};

struct shape {
  index_t B, Tq, Tk, heads, width;
  bool causal = false;
  aft::gate gate_fn = aft::gate::sigmoid;
  bool lengths = false;
  index_t window = -1;
  dtype type = dtype::bf16;
  dtype average = dtype::f32;
  bool padding = false;
  bool in_place = false;  ///< y is q
  bool odd = false;       ///< numbers that no product takes among the others
  index_t d() const { return heads * width; }
  /// Of two columns, so that its rows may lie apart.
  bool on_grid() const { return Tq == Tk && Tq % 2 == 0; }
};

std::vector<float> random_numbers(unsigned seed, index_t n, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (index_t i = 0; i < n; ++i) x.push_back(scale * normal(engine));
  return x;
}

/// Some of what special numbers there are, far apart enough to leave most of a lane's others alone.
void make_odd(std::vector<float>& x, std::size_t step, const std::vector<float>& from) {
  for (std::size_t i = step / 2, n = 0; i < x.size(); i += step) x[i] = from[n++ % from.size()];
}

/// One call and its gradients. Tensors of results lie as those of data do.
struct line_call {
  shape s;
  stored q, k, v, y, lse, average, dy, dq, dk, dv;
  std::vector<float> w, dw;
  std::vector<std::int32_t> lengths, rows;
  aft::backward_problem p{};

  line_call(const shape& of, const layout& how)
      : s(of),
        q(s.type, s.B, s.Tq, s.d(), how),
        k(s.type, s.B, s.Tk, s.d(), how),
        v(s.type, s.B, s.Tk, s.d(), how),
        y(s.type, s.B, s.Tq, s.d(), how),
        lse(dtype::f32, s.B, s.Tq, s.d(), how),
        average(s.average, s.B, s.Tq, s.d(), how),
        dy(s.type, s.B, s.Tq, s.d(), how),
        dq(s.type, s.B, s.Tq, s.d(), how),
        dk(s.type, s.B, s.Tk, s.d(), how),
        dv(s.type, s.B, s.Tk, s.d(), how) {
    const index_t queries = s.B * s.Tq * s.d(), keys = s.B * s.Tk * s.d();
    std::vector<float> ks = random_numbers(1, keys, 1), vs = random_numbers(2, keys, 1),
                       qs = random_numbers(3, queries, 2);
    std::vector<float> dys = random_numbers(4, queries, 1);
    if (s.odd) {
      make_odd(ks, 701, {-infinity, 60.0f, -60.0f, -4500.0f, 5000.0f, no_number, infinity, -200.0f, 200.0f});
      make_odd(vs, 503, {0.0f, -0.0f, 1e-20f, 1e20f, no_number, infinity, 1e-42f});
      make_odd(qs, 401, {0.0f, -infinity, infinity, 100.0f, -100.0f, no_number});
      make_odd(dys, 601, {0.0f, -0.0f, 1e-38f, 1e38f, infinity, no_number});
      // A column of zeros and one of numbers below the normal ones, whose units are as small.
      for (index_t row = 0; row < s.B * s.Tq; ++row) {
        dys[static_cast<std::size_t>(row * s.d() + 1)] = 0.0f;
        dys[static_cast<std::size_t>(row * s.d() + 2)] *= 1e-39f;
      }
    }
    q.write(qs);
    k.write(ks);
    v.write(vs);
    dy.write(dys);
    w = random_numbers(5, s.heads * s.Tq * s.Tk, 1);
    dw.assign(w.size(), 0.0f);
    for (index_t b = 0; b < s.B; ++b) {
      lengths.push_back(static_cast<std::int32_t>(s.Tk - 5 - 9 * b));
      rows.push_back(static_cast<std::int32_t>(s.Tq - 3 - 11 * b));
    }
    p.B = s.B;
    p.Tq = s.Tq;
    p.Tk = s.Tk;
    p.d = p.hk = s.d();
    if (s.on_grid()) {
      p.grid = {1, s.Tq / 2, 2};
    } else {
      p.grid = {1, 1, s.Tq};
    }
    p.q = q.field();
    p.k = k.field();
    p.v = v.field();
    p.y = s.in_place ? q.field() : y.field();
    p.lse = lse.field();
    p.average = average.field();
    p.causal = s.causal;
    p.gate_fn = s.gate_fn;
    if (s.gate_fn == aft::gate::none) p.q = {};
    if (s.padding) p.query_lengths = {reinterpret_cast<const std::byte*>(rows.data()), 4, false};
    if (s.lengths) p.lengths = {reinterpret_cast<const std::byte*>(lengths.data()), 4, false};
    if (s.window > 0) p.win = {true, s.window, s.causal ? 0 : s.window};
    p.bias.heads = s.heads;
    if (s.window != 0) {
      p.bias.kind = aft::bias_kind::dense;
      p.bias.w = {reinterpret_cast<std::byte*>(w.data()), dtype::f32, true, 0, s.Tq * s.Tk, s.Tk, 1};
    }
  }

  /// The bits of all results, a part each.
  std::vector<std::vector<std::uint32_t>> run() {
    const call_stream stream("lines", nullptr);
    forward<float>(p, stream);
    aft::backward_problem back = p;
    back.y = {};
    back.dy = dy.field();
    if (s.gate_fn != aft::gate::none) back.dq = dq.field();
    back.dk = dk.field();
    back.dv = dv.field();
    if (p.bias.kind == aft::bias_kind::dense) {
      back.dbias = p.bias;
      back.dbias.w.data = reinterpret_cast<std::byte*>(dw.data());
    }
    std::vector<std::vector<std::uint32_t>> bits;
    q.append_to(bits.emplace_back());
    if (s.in_place) return bits;
    backward<float>(back, stream);
    for (stored* const part : {&y, &lse, &average, &dq, &dk, &dv}) part->append_to(bits.emplace_back());
    bits.emplace_back();
    for (float x : dw) bits.back().push_back(std::bit_cast<std::uint32_t>(x));
    return bits;
  }
};

void check_same(const shape& s, emulator::products engine) {
  emulator::current_products() = engine;
  const auto expected = line_call(s, s.on_grid() ? uneven : others[0]).run();
#if defined(AFT_TEST_WATCHED)
  static std::size_t turn = 0;
  const layout all[] = {lines, wide_lines, others[1], others[2]};
  const layout looked_at[] = {all[turn++ % std::size(all)]};
#else
  const layout looked_at[] = {lines, wide_lines, others[1], others[2]};
#endif
  for (const layout& how : looked_at) {
    CAPTURE(how.name);
    const auto got = line_call(s, how).run();
    REQUIRE(got.size() == expected.size());
    for (std::size_t part = 0; part < got.size(); ++part) {
      CAPTURE(part);
      // Not one of them by one: most are equal.
      CHECK((got[part] == expected[part]));
    }
  }
}

void check_same(const shape& s) {
#if defined(AFT_TEST_WATCHED)
  // Sanitizers look at addresses: a call is on one engine, and its tensors lie in one way. They take turns.
  static std::size_t turn = 0;
  check_same(s, turn++ / 4 % 2 == 0 ? emulator::products::chosen : emulator::products::by_warpgroups);
  emulator::current_products() = emulator::products::chosen;
  return;
#endif
  for (auto engine : {emulator::products::chosen, emulator::products::by_warpgroups}) check_same(s, engine);
  emulator::current_products() = emulator::products::chosen;
}

}  // namespace

TEST_CASE("access: products of lines have the bits of any layout") {
  const shape base{.B = 2, .Tq = 70, .Tk = 75, .heads = 2, .width = 24};
  for (bool odd : {false, true})
    for (bool causal : {false, true}) {
      shape s = base;
      s.odd = odd;
      s.causal = causal;
      check_same(s);
      s.lengths = s.padding = true;
      check_same(s);
      s.in_place = true;
      check_same(s);
    }
}

TEST_CASE("access: heads of any width, and tiles that are full or nearly empty") {
  for (index_t width : {16, 17, 20, 64, 136})
    for (index_t T : {64, 65, 128}) {
      const shape s{.B = 1, .Tq = T, .Tk = T, .heads = 1, .width = width, .odd = true};
      CAPTURE(width);
      check_same(s);
    }
}

TEST_CASE("access: every gate, windows, and an average in the type of the data") {
  for (auto gate_fn : {aft::gate::none, aft::gate::identity, aft::gate::relu, aft::gate::tanh, aft::gate::silu})
    check_same({.B = 1, .Tq = 64, .Tk = 64, .heads = 1, .width = 32, .gate_fn = gate_fn, .odd = true});
  for (bool causal : {false, true})
    check_same({.B = 2, .Tq = 260, .Tk = 260, .heads = 2, .width = 16, .causal = causal, .window = 6, .odd = true});
  check_same({.B = 2, .Tq = 70, .Tk = 70, .heads = 2, .width = 16, .average = dtype::bf16, .odd = true});
}

TEST_CASE("access: scans and the gate's gradient by steps have the bits of any layout") {
  for (dtype type : {dtype::bf16, dtype::f32, dtype::f16})
    for (bool causal : {false, true})
      for (bool odd : {false, true}) {
        shape s{.B = 2, .Tq = 134, .Tk = 134, .heads = 1, .width = 19, .causal = causal, .window = 0, .type = type};
        s.odd = odd;
        CAPTURE(causal);
        check_same(s, emulator::products::chosen);
        s.lengths = s.padding = true;
        s.gate_fn = causal ? aft::gate::silu : aft::gate::none;
        check_same(s, emulator::products::chosen);
        s.average = type;
        check_same(s, emulator::products::chosen);
      }
}

TEST_CASE("access: lines are taken where they can be, and nowhere else") {
  const shape s{.B = 2, .Tq = 70, .Tk = 75, .heads = 2, .width = 24};
  const auto chosen = [](const shape& of, const layout& how) {
    const line_call x(of, how);
    device_call<float> call = to_call<float>(x.p);
    call.from_lse = true;
    const columns cols = columns_of(x.p);
    CHECK(packs_key_lines(call, cols) == packs_query_lines(call, cols));
    return packs_key_lines(call, cols);
  };
  CHECK(chosen(s, lines));
  CHECK(chosen(s, wide_lines));
  for (const layout& how : others) CHECK(!chosen(s, how));
  shape narrow = s;
  narrow.width = 18;
  CHECK(!chosen(narrow, lines));
  line_call x(s, lines);
  CHECK(packs_key_lines(to_call<float>(x.p), columns_of(x.p)));
  const std::uint8_t mask[200] = {};
  x.p.mask = reinterpret_cast<const std::byte*>(mask);
  CHECK(!packs_key_lines(to_call<float>(x.p), columns_of(x.p)));
  x.p.mask = nullptr;
  x.p.k.type = dtype::f16;
  CHECK(!packs_key_lines(to_call<float>(x.p), columns_of(x.p)));
  x.p.k.type = dtype::bf16;
  x.p.hk = s.d() / 2;
  CHECK(!packs_key_lines(to_call<float>(x.p), columns_of(x.p)));
}

TEST_CASE("access: results are written as lines where all of them can be, and nowhere else") {
  const shape s{.B = 2, .Tq = 70, .Tk = 75, .heads = 2, .width = 24};
  const auto written = [](const line_call& x) {
    return writes_lines<query_rows>(to_call<float>(x.p), columns_of(x.p));
  };
  const auto differently = [&](auto change) {
    line_call x(s, lines);
    change(x.p);
    return written(x);
  };
  CHECK(written(line_call(s, lines)));
  for (const layout& how : others) CHECK(!written(line_call(s, how)));
  CHECK(differently([](auto& p) { p.lse = {}; }));
  CHECK(differently([](auto& p) { p.average.type = dtype::bf16; }));
  CHECK(!differently([](auto& p) { p.average.type = dtype::f16; }));
  CHECK(!differently([](auto& p) { p.lse.data += 4; }));
  CHECK(!differently([](auto& p) { p.q.sx[2] += 1; }));
  CHECK(!differently([](auto& p) { p.y.sb += 4; }));
  CHECK(!differently([](auto& p) { p.hk = p.d / 2; }));
  CHECK(!differently([](auto& p) { p.bias.heads = 4; }));  // of 12 channels
  line_call x(s, lines);
  device_call<float> call = to_call<float>(x.p);
  call.dk = to_tensor(x.dk.field(), call.positions);
  call.dv = to_tensor(x.dv.field(), call.positions);
  CHECK(writes_lines<key_rows>(call, columns_of(x.p)));
  using part_of_call = tensor device_call<float>::*;
  for (const part_of_call part :
       {&device_call<float>::k, &device_call<float>::v, &device_call<float>::dk, &device_call<float>::dv}) {
    device_call<float> other = call;
    (other.*part).data += 2;
    CHECK(!writes_lines<key_rows>(other, columns_of(x.p)));
  }
  const std::byte mask{};
  call.mask = &mask;
  CHECK(!writes_lines<key_rows>(call, columns_of(x.p)));
}

TEST_CASE("access: what steps serve, whatever the channels' strides") {
  const shape s{.B = 2, .Tq = 70, .Tk = 70, .heads = 2, .width = 24, .window = 0};
  const auto of = [](const line_call& x) { return scan_chunks_of(to_call<float>(x.p)); };
  for (const layout& how : {lines, wide_lines, others[0], others[1], others[2]})
    CHECK((of(line_call(s, how)) == &scan_chunks_kernel<float, even_steps<aft::bfloat16>>));
  CHECK((of(line_call(s, uneven)) == &scan_chunks_kernel<float, any_layout>));
  line_call x(s, lines);
  x.p.k.type = dtype::f32;
  CHECK((of(x) == &scan_chunks_kernel<float, any_layout>));
  x.p.v.type = dtype::f32;
  CHECK((of(x) == &scan_chunks_kernel<float, even_steps<float>>));
  device_call<float> call = to_call<float>(x.p);
  CHECK((scan_queries_of(call) == &scan_queries_kernel<float, even_steps<float>>));
  call.average.type = dtype::bf16;
  CHECK((scan_queries_of(call) == &scan_queries_kernel<float, any_layout>));
}
