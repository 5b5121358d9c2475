// SPDX-License-Identifier: Apache-2.0
// Every wrong forward call is refused with its argument's name and numbers, and writes nothing.
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::canary;
using aft::test::check_parts;
using aft::test::error_of;
using in2 = aft::tensor_view<const float, 2>;
using in3 = aft::tensor_view<const float, 3>;
using in4 = aft::tensor_view<const float, 4>;
using out2 = aft::tensor_view<float, 2>;
using out3 = aft::tensor_view<float, 3>;
using out4 = aft::tensor_view<float, 4>;

constexpr index_t B = 2, Tq = 5, Tk = 7, d = 12, hk = 6, H = 3, rank = 4;

// A valid call of aft::full; each case spoils one part of it.
struct full_call {
  std::vector<float> memory = std::vector<float>(4000, 0.5f);
  canary<float> written{1000};
  in3 q{memory.data(), {B, Tq, d}}, k{memory.data(), {B, Tk, hk}}, v{memory.data(), {B, Tk, d}};
  in3 w{memory.data(), {H, Tq, Tk}}, u{memory.data(), {H, Tq, rank}}, factor{memory.data(), {H, Tk, rank}};
  out3 y{written.data(), {B, Tq, d}};
  aft::options opt{};

  std::string dense() {
    return checked(error_of([&] { aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y, opt); }));
  }
  std::string factorized() {
    return checked(error_of([&] { aft::full(q, k, v, aft::factorized_bias{u, factor}, y, opt); }));
  }
  std::string simple() {
    return checked(error_of([&] { aft::simple(q, k, v, y, opt); }));
  }
  std::string checked(std::string message) {
    if (message != "no shape_error") CHECK(written.untouched());
    return message;
  }
};

}  // namespace

TEST_CASE("the calls that the cases below spoil are valid") {
  CHECK(full_call{}.dense() == "no shape_error");
  CHECK(full_call{}.factorized() == "no shape_error");
  CHECK(full_call{}.simple() == "no shape_error");
}

TEST_CASE("a shape_error is a std::invalid_argument and reads as documented") {
  full_call c;
  c.k = {c.memory.data(), {B, Tk, 7}};
  CHECK(c.dense() == "aft::full: argument 'k': expected extent 2 (hk) to divide d = 12, got 7");
  CHECK_THROWS_AS(aft::simple(c.q, c.k, c.v, c.y), std::invalid_argument);
}

TEST_CASE("the tensor that disagrees with the others is named") {
  full_call c;
  SUBCASE("batch of q") {
    c.q = {c.memory.data(), {3, Tq, d}};
    check_parts(c.dense(), {"aft::full", "'q'", "extent 0 (B) to be 2", "got 3"});
  }
  SUBCASE("batch of k") {
    c.k = {c.memory.data(), {1, Tk, hk}};
    check_parts(c.dense(), {"'k'", "(B) to be 2", "got 1"});
  }
  SUBCASE("batch of v") {
    c.v = {c.memory.data(), {4, Tk, d}};
    check_parts(c.simple(), {"aft::simple", "'v'", "(B) to be 2", "got 4"});
  }
  SUBCASE("batch of y") {
    c.y = {c.written.data(), {3, Tq, d}};
    check_parts(c.factorized(), {"'y'", "(B) to be 2", "got 3"});
  }
  SUBCASE("queries") {
    c.q = {c.memory.data(), {B, 6, d}};
    check_parts(c.dense(), {"'q'", "extent 1 (Tq) to be 5", "got 6"});
  }
  SUBCASE("rows of y") {
    c.y = {c.written.data(), {B, 4, d}};
    check_parts(c.dense(), {"'y'", "extent 1 (Tq) to be 5", "got 4"});
  }
  SUBCASE("keys of k") {
    c.k = {c.memory.data(), {B, 8, hk}};
    check_parts(c.dense(), {"'k'", "extent 1 (Tk) to be 7", "got 8"});
  }
  SUBCASE("keys of v, two against one") {
    c.v = {c.memory.data(), {B, 8, d}};
    check_parts(c.dense(), {"'v'", "extent 1 (Tk) to be 7", "got 8"});
  }
  SUBCASE("keys of k and v alone, in cross attention: both are named") {
    c.v = {c.memory.data(), {B, 8, d}};
    check_parts(c.simple(), {"'v'", "'k'", "7", "got 8"});
  }
  SUBCASE("keys of k and v alone, in self-attention: the one that is not as long as q") {
    const in3 x{c.memory.data(), {B, Tq, d}}, shorter{c.memory.data(), {B, 4, d}};
    check_parts(error_of([&] { aft::simple(x, shorter, x, c.y); }), {"argument 'k'", "(Tk) to be 5", "got 4"});
    check_parts(error_of([&] { aft::simple(x, x, shorter, c.y); }), {"argument 'v'", "(Tk) to be 5", "got 4"});
    check_parts(error_of([&] { aft::simple(shorter, x, x, c.y); }), {"argument 'q'", "(Tq) to be 5", "got 4"});
  }
  SUBCASE("channels") {
    c.v = {c.memory.data(), {B, Tk, 18}};
    check_parts(c.dense(), {"'v'", "extent 2 (d) to be 12", "got 18"});
  }
  SUBCASE("a view without a batch axis among batches") {
    check_parts(error_of([&] {
                  aft::simple(c.q, c.k, in2{c.memory.data(), {Tk, d}}, c.y);
                }),
                {"'v'", "batch axis", "2", "got 1"});
  }
}

TEST_CASE("biases: rows, columns, heads, batch, rank of the factors") {
  full_call c;
  SUBCASE("rows of w") {
    c.w = {c.memory.data(), {H, 6, Tk}};
    check_parts(c.dense(), {"'w'", "extent 1 (Tq) to be 5", "got 6"});
  }
  SUBCASE("columns of w") {
    c.w = {c.memory.data(), {H, Tq, 9}};
    check_parts(c.dense(), {"'w'", "extent 2 (Tk) to be 7", "got 9"});
  }
  SUBCASE("heads of w") {
    c.w = {c.memory.data(), {5, Tq, Tk}};
    check_parts(c.dense(), {"'w'", "extent 0 (H) to divide d = 12", "got 5"});
  }
  SUBCASE("no heads at all") {
    c.w = {c.memory.data(), {0, Tq, Tk}};
    check_parts(c.dense(), {"'w'", "(H)", "got 0"});
  }
  SUBCASE("batch of w") {
    const in4 w{c.memory.data(), {3, H, Tq, Tk}};
    check_parts(error_of([&] { aft::full(c.q, c.k, c.v, aft::dense_bias{w}, c.y); }),
                {"'w'", "(B) to be 1 or 2", "got 3"});
  }
  SUBCASE("rows of u") {
    c.u = {c.memory.data(), {H, 8, rank}};
    check_parts(c.factorized(), {"'u'", "(Tq) to be 5", "got 8"});
  }
  SUBCASE("rows of v") {
    c.factor = {c.memory.data(), {H, 5, rank}};
    check_parts(c.factorized(), {"'v' of bias", "(Tk) to be 7", "got 5"});
  }
  SUBCASE("heads of u") {
    c.u = {c.memory.data(), {7, Tq, rank}};
    check_parts(c.factorized(), {"'u'", "(H) to divide d = 12", "got 7"});
  }
  SUBCASE("heads of u and v") {
    c.factor = {c.memory.data(), {2, Tk, rank}};
    check_parts(c.factorized(), {"'v' of bias", "(H) to be 1 or 3", "got 2"});
  }
  SUBCASE("rank of u and v") {
    c.factor = {c.memory.data(), {H, Tk, 5}};
    check_parts(c.factorized(), {"'v' of bias", "(n) to be 4", "got 5"});
  }
  SUBCASE("one head on one side is a broadcast, not an error") {
    c.factor = {c.memory.data(), {1, Tk, rank}};
    CHECK(c.factorized() == "no shape_error");
  }
}

TEST_CASE("extents, strides and data that cannot be") {
  full_call c;
  SUBCASE("negative extent") {
    c.v = {c.memory.data(), {B, -7, d}, {1, 1, 1}};
    check_parts(c.simple(), {"'v'", "extent 1 to be at least 0", "got -7"});
  }
  SUBCASE("null input") {
    c.k = {nullptr, {B, Tk, hk}};
    check_parts(c.dense(), {"'k'", "(2, 7, 6)", "84", "null"});
  }
  SUBCASE("null bias") {
    c.w = {nullptr, {H, Tq, Tk}};
    check_parts(c.dense(), {"'w'", "null"});
  }
  SUBCASE("null output") {
    c.y = {nullptr, {B, Tq, d}};
    check_parts(c.dense(), {"'y'", "null"});
  }
  SUBCASE("broadcast output") {
    c.y = {c.written.data(), {B, Tq, d}, {0, d, 1}};
    check_parts(c.dense(), {"'y'", "axis 0", "stride", "extent is 2", "got 0"});
  }
  SUBCASE("stride 0 on an axis of extent 1 is harmless") {
    const in3 q{c.memory.data(), {1, Tq, d}}, k{c.memory.data(), {1, Tk, d}};
    const out3 y{c.written.data(), {1, Tq, d}, {0, d, 1}};
    CHECK(error_of([&] { aft::simple(q, k, k, y); }) == "no shape_error");
  }
  SUBCASE("product of extents beyond 64 bits") {
    c.v = {c.memory.data(), {index_t{1} << 32, index_t{1} << 32, d}, {0, 0, 1}};
    check_parts(c.simple(), {"'v'", "2^63", "4294967296"});
  }
  SUBCASE("offsets beyond 64 bits") {
    c.v = {c.memory.data(), {B, Tk, d}, {index_t{1} << 62, d, 1}};
    check_parts(c.simple(), {"'v'", "stride 4611686018427387904", "axis 0"});
  }
}

TEST_CASE("gate::none does not look at q") {
  full_call c;
  c.q = {nullptr, {9, 9, 9}};
  c.opt.gate_fn = aft::gate::none;
  CHECK(c.dense() == "no shape_error");
  full_call reads_q;
  reads_q.q = c.q;
  check_parts(reads_q.dense(), {"'q'"});
}

TEST_CASE("local: lengths, window and width") {
  std::vector<float> memory(4000, 0.5f);
  canary<float> written(1000);
  const in3 x{memory.data(), {B, Tq, d}};
  const out3 y{written.data(), {B, Tq, d}};
  const in2 w{memory.data(), {Tq, Tq}};
  const aft::dense_bias dense{w};
  SUBCASE("cross lengths") {
    const in3 longer{memory.data(), {B, Tk, d}};
    const auto message = error_of([&] { aft::local(x, longer, longer, dense, aft::window::strict(2), y); });
    check_parts(message, {"aft::local", "'w'", "(Tk) to be 7", "got 5"});
  }
  SUBCASE("negative width") {
    const auto message = error_of([&] { aft::local(x, x, x, dense, aft::window::strict(-1), y); });
    check_parts(message, {"'window'", "at least 0", "got window{-2, 0}, which has -1"});
  }
  SUBCASE("reach that overflows") {
    const aft::window far{.before = INT64_MAX, .after = INT64_MAX};
    check_parts(error_of([&] { aft::local(x, x, x, dense, far, y); }),
                {"'window'", "got window{9223372036854775807, 9223372036854775807}"});
  }
  SUBCASE("banded width") {
    const aft::banded_bias band{in2{memory.data(), {Tq, 4}}};
    const auto message = error_of([&] { aft::local(x, x, x, band, aft::window::inclusive(1), y); });
    check_parts(message, {"'w'", "(width) to be 3", "got 4"});
  }
  SUBCASE("banded rows") {
    const aft::banded_bias band{in2{memory.data(), {4, 3}}};
    const auto message = error_of([&] { aft::local(x, x, x, band, aft::window::inclusive(1), y); });
    check_parts(message, {"'w'", "(Tq) to be 5", "got 4"});
  }
  CHECK(written.untouched());
}

TEST_CASE("conv: grid, heads, taps, causal") {
  std::vector<float> memory(4000, 0.5f);
  canary<float> written(1000);
  const in4 x{memory.data(), {B, 3, 4, d}};
  const out4 y{written.data(), {B, 3, 4, d}};
  const in3 filter{memory.data(), {H, 3, 3}};
  SUBCASE("grid") {
    const in4 wrong{memory.data(), {B, 3, 5, d}};
    check_parts(error_of([&] { aft::conv(x, x, wrong, filter, y); }),
                {"aft::conv", "'v'", "extent 2 (W) to be 4", "got 5"});
    const in4 taller{memory.data(), {B, 2, 4, d}};
    check_parts(error_of([&] { aft::conv(taller, x, x, filter, y); }), {"'q'", "extent 1 (H) to be 3", "got 2"});
  }
  SUBCASE("heads") {
    const in3 wrong{memory.data(), {5, 3, 3}};
    check_parts(error_of([&] { aft::conv(x, x, x, wrong, y); }), {"'filter'", "(H) to divide d = 12", "got 5"});
  }
  SUBCASE("null filter") {
    const in3 wrong{nullptr, {H, 3, 3}};
    check_parts(error_of([&] { aft::conv(x, x, x, wrong, y); }), {"'filter'", "27", "null"});
  }
  SUBCASE("causal on a 2-D grid") {
    check_parts(error_of([&] { aft::conv(x, x, x, filter, y, {.causal = true}); }), {"'causal'", "grid", "2 axes"});
  }
  SUBCASE("causal on a 3-D grid") {
    const aft::tensor_view<const float, 5> cube{memory.data(), {1, 2, 2, 2, d}};
    const aft::tensor_view<float, 5> out{written.data(), {1, 2, 2, 2, d}};
    const in4 kernel{memory.data(), {H, 1, 1, 1}};
    check_parts(error_of([&] { aft::conv(cube, cube, cube, kernel, out, {.causal = true}); }), {"'causal'", "3 axes"});
  }
  CHECK(written.untouched());
}

TEST_CASE("a negative number of threads is refused by every call on the host") {
  const aft::cpu exec{.threads = -3};
  std::vector<float> memory(400, 0.5f);
  canary<float> written(400);
  const in3 x{memory.data(), {1, 5, 4}};
  const in2 w{memory.data(), {5, 5}}, filter{memory.data(), {1, 3}};
  const aft::tensor_view<const float, 1> head{memory.data(), {1}};
  const out3 y{written.data(), {1, 5, 4}};
  const out4 map{written.data(), {1, 5, 5, 4}};
  const out2 to{written.data(), {1, 3}};
  const aft::dense_bias bias{w};
  const auto none = aft::no_grad;
  const auto near = aft::window::strict(1);
  const auto refused = [&](const char* op, const auto& call) {
    CHECK(error_of(call) == std::string(op) + ": argument 'exec': expected threads of at least 0, got -3");
    CHECK(written.untouched());
  };
  refused("aft::full", [&] { aft::full(exec, x, x, x, bias, y); });
  refused("aft::local", [&] { aft::local(exec, x, x, x, bias, near, y); });
  refused("aft::simple", [&] { aft::simple(exec, x, x, x, y); });
  refused("aft::conv", [&] { aft::conv(exec, x, x, x, filter, y); });
  refused("aft::full_backward", [&] { aft::full_backward(exec, x, x, x, bias, x, none, none, y, none); });
  refused("aft::local_backward", [&] { aft::local_backward(exec, x, x, x, bias, near, x, none, none, y, none); });
  refused("aft::simple_backward", [&] { aft::simple_backward(exec, x, x, x, x, none, none, y); });
  refused("aft::conv_backward", [&] { aft::conv_backward(exec, x, x, x, filter, x, none, none, y, none); });
  refused("aft::attention_map", [&] { aft::attention_map(exec, x, bias, map); });
  refused("aft::reparameterize", [&] { aft::reparameterize(exec, filter, head, head, to); });
  refused("aft::reparameterize_backward",
          [&] { aft::reparameterize_backward(exec, filter, head, head, filter, to, none, none); });
}

TEST_CASE("zero-size tensors are valid, null data and all") {
  std::vector<float> memory(400, 0.5f), written(400, 42.0f), simple(400);
  const auto run = [&](index_t b, index_t tq, index_t tk, index_t channels) {
    const auto data = [&](index_t size) { return size == 0 ? nullptr : memory.data(); };
    const in3 q{data(b * tq * channels), {b, tq, channels}}, v{data(b * tk * channels), {b, tk, channels}};
    const in2 w{data(tq * tk), {tq, tk}};
    const out3 y{b * tq * channels == 0 ? nullptr : written.data(), {b, tq, channels}};
    return error_of([&] { aft::full(q, v, v, aft::dense_bias{w}, y); });
  };
  CHECK(run(0, 3, 3, 4) == "no shape_error");
  CHECK(run(2, 0, 3, 4) == "no shape_error");
  CHECK(run(2, 3, 3, 0) == "no shape_error");
  for (float x : written) CHECK(x == 42.0f);
  // No keys at all: every row sees none, and is 0.
  CHECK(run(2, 3, 0, 4) == "no shape_error");
  for (std::size_t i = 0; i < written.size(); ++i) CHECK(written[i] == (i < 2 * 3 * 4 ? 0.0f : 42.0f));

  // Of keys without values nothing could come, so they are no keys of this call.
  const in3 none{nullptr, {2, 3, 0}};
  const out3 nowhere{nullptr, {2, 3, 0}}, lse{written.data(), {2, 3, 2}};
  const std::string refused = error_of([&] {
    aft::simple(none, in3{memory.data(), {2, 3, 2}}, none, nowhere, {.lse = lse});
  });
  CHECK(refused.find("'k': expected extent 2 (hk) to be 0, got 2") != std::string::npos);

  // With keys of 0 and values of 1/2 every average is exact, in whatever order it is summed.
  const std::vector<float> zeros(40);
  const in3 x{memory.data(), {2, 5, 4}}, k{zeros.data(), {2, 5, 4}};
  aft::conv(x, k, x, in2{nullptr, {2, 0}}, out3{written.data(), {2, 5, 4}}, {.gate_fn = aft::gate::none});
  aft::simple(x, k, x, out3{simple.data(), {2, 5, 4}}, {.gate_fn = aft::gate::none});
  for (std::size_t i = 0; i < 2 * 5 * 4; ++i) CHECK(written[i] == simple[i]);
}

TEST_CASE("a banded bias without columns may be null: no pair is inside, and every key counts alike") {
  const index_t T = 64, channels = 8;
  const std::size_t size = static_cast<std::size_t>(B * T * channels);
  // With q = k = 0, v = dy = 1/2 and a power of two of keys every step is exact, in whatever order it is summed.
  const std::vector<float> zeros(size, 0.0f), halves(size, 0.5f);
  std::vector<float> y(size, 42.0f), dq(y), dk(y), dv(y);
  const auto in = [&](const std::vector<float>& data) { return in3{data.data(), {B, T, channels}}; };
  const auto out = [&](std::vector<float>& data) { return out3{data.data(), {B, T, channels}}; };
  const aft::banded_bias none{in2{nullptr, {T, 0}}};
  aft::local(in(zeros), in(zeros), in(halves), none, aft::window::strict(0), out(y));
  aft::local_backward(in(zeros), in(zeros), in(halves), none, aft::window::strict(0), in(halves), out(dq), out(dk),
                      out(dv), aft::banded_bias{out2{nullptr, {T, 0}}});
  CHECK(y == std::vector<float>(size, 0.25f));     // sigma(0) v
  CHECK(dq == std::vector<float>(size, 0.0625f));  // dy v sigma'(0)
  CHECK(dk == zeros);                              // every value is the average
  CHECK(dv == std::vector<float>(size, 0.25f));    // T queries give sigma(0) dy / T each
}
