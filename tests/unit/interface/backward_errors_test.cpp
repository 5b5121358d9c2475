// SPDX-License-Identifier: Apache-2.0
// Every wrong backward call is refused with its argument's name and numbers, and writes nothing.
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::canary;
using aft::test::check_parts;
using aft::test::error_of;
using in2 = aft::tensor_view<const float, 2>;
using in3 = aft::tensor_view<const float, 3>;
using out2 = aft::tensor_view<float, 2>;
using out3 = aft::tensor_view<float, 3>;

constexpr index_t B = 2, T = 5, d = 12, hk = 6, H = 3, rank = 4;

// A valid call; each case spoils one part of it.
struct backward_call {
  std::vector<float> memory = std::vector<float>(4000, 0.5f);
  canary<float> written{2000};
  float* at = written.data();
  in3 q{memory.data(), {B, T, d}}, k{memory.data(), {B, T, hk}}, v{memory.data(), {B, T, d}},
      dy{memory.data(), {B, T, d}};
  in3 w{memory.data(), {H, T, T}}, u{memory.data(), {H, T, rank}}, factor{memory.data(), {H, T, rank}};
  in2 filter{memory.data(), {H, 3}}, band{memory.data(), {T, 3}};
  out3 dq{at, {B, T, d}}, dk{at + 200, {B, T, hk}}, dv{at + 400, {B, T, d}};
  out3 dw{at + 600, {H, T, T}}, du{at + 800, {H, T, rank}}, dfactor{at + 1000, {H, T, rank}};
  out2 dfilter{at + 1200, {H, 3}}, dband{at + 1400, {T, 3}};
  aft::options opt{};

  template <class F>
  std::string run(F&& f) {
    std::string message = error_of(f);
    if (message != "no shape_error") CHECK(written.untouched());
    return message;
  }
  std::string full() {
    return run([&] { aft::full_backward(q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{dw}, opt); });
  }
  std::string factorized() {
    return run([&] {
      aft::full_backward(aft::cpu{}, q, k, v, aft::factorized_bias{u, factor}, dy, dq, dk, dv,
                         aft::factorized_bias{du, dfactor}, opt);
    });
  }
  std::string local() {
    return run([&] {
      aft::local_backward(q, k, v, aft::banded_bias{band}, aft::window::inclusive(1), dy, dq, dk, dv,
                          aft::banded_bias{dband}, opt);
    });
  }
  std::string simple() {
    return run([&] { aft::simple_backward(q, k, v, dy, dq, dk, dv, opt); });
  }
  std::string conv() {
    return run([&] { aft::conv_backward(q, k, v, filter, dy, dq, dk, dv, dfilter, opt); });
  }
};

}  // namespace

TEST_CASE("the backward calls that the cases below spoil are valid") {
  CHECK(backward_call{}.full() == "no shape_error");
  CHECK(backward_call{}.factorized() == "no shape_error");
  CHECK(backward_call{}.local() == "no shape_error");
  CHECK(backward_call{}.simple() == "no shape_error");
  CHECK(backward_call{}.conv() == "no shape_error");
}

TEST_CASE("gradients have the shape of what they belong to") {
  backward_call c;
  SUBCASE("dy") {
    c.dy = {c.memory.data(), {B, 4, d}};
    check_parts(c.simple(), {"aft::simple_backward", "'dy'", "(Tq)", "4", "5"});
  }
  SUBCASE("dq") {
    c.dq = {c.at, {B, T, 6}};
    check_parts(c.full(), {"aft::full_backward", "'dq'", "extent 2 (d) to be 12", "got 6"});
  }
  SUBCASE("dk has hk channels") {
    c.dk = {c.at + 200, {B, T, d}};
    check_parts(c.full(), {"'dk'", "extent 2 (hk) to be 6", "got 12"});
  }
  SUBCASE("dv") {
    c.dv = {c.at + 400, {1, T, d}};
    check_parts(c.local(), {"aft::local_backward", "'dv'", "extent 0 (B) to be 2", "got 1"});
  }
  SUBCASE("dbias.w") {
    c.dw = {c.at + 600, {H, T, 6}};
    check_parts(c.full(), {"'dbias.w'", "extent 2 to be 5", "got 6"});
  }
  SUBCASE("dbias.u") {
    c.du = {c.at + 800, {1, T, rank}};
    check_parts(c.factorized(), {"'dbias.u'", "extent 0 to be 3", "got 1"});
  }
  SUBCASE("dbias.v") {
    c.dfactor = {c.at + 1000, {H, T, 3}};
    check_parts(c.factorized(), {"'dbias.v'", "extent 2 to be 4", "got 3"});
  }
  SUBCASE("banded dbias.w") {
    c.dband = {c.at + 1400, {T, 4}};
    check_parts(c.local(), {"'dbias.w'", "extent 1 to be 3", "got 4"});
  }
  SUBCASE("dfilter") {
    c.dfilter = {c.at + 1200, {H, 5}};
    check_parts(c.conv(), {"aft::conv_backward", "'dfilter'", "extent 1 to be 3", "got 5"});
  }
}

TEST_CASE("inputs of a backward call are checked as those of a forward call") {
  backward_call c;
  SUBCASE("hk") {
    c.k = {c.memory.data(), {B, T, 5}};
    check_parts(c.full(), {"'k'", "(hk) to divide d = 12", "got 5"});
  }
  SUBCASE("heads") {
    c.filter = {c.memory.data(), {5, 3}};
    check_parts(c.conv(), {"'filter'", "(H) to divide d = 12", "got 5"});
  }
  SUBCASE("null dy") {
    c.dy = {nullptr, {B, T, d}};
    check_parts(c.simple(), {"'dy'", "null"});
  }
  SUBCASE("causal grid") {
    const aft::tensor_view<const float, 4> x{c.memory.data(), {1, 2, 2, d}};
    const in3 r{c.memory.data(), {H, 3, 3}};
    const auto message = c.run([&] {
      aft::conv_backward(x, x, x, r, x, aft::no_grad, aft::no_grad, aft::no_grad, aft::no_grad, {.causal = true});
    });
    check_parts(message, {"'causal'", "2 axes"});
  }
}

TEST_CASE("gradient memory: null, broadcast, shared") {
  backward_call c;
  SUBCASE("null") {
    c.dk = {nullptr, {B, T, hk}};
    check_parts(c.full(), {"'dk'", "null"});
  }
  SUBCASE("broadcast") {
    c.dw = {c.at + 600, {H, T, T}, {0, T, 1}};
    check_parts(c.full(), {"'dbias.w'", "axis 0", "got 0"});
  }
  SUBCASE("two gradients in one place") {
    c.dv = {c.at, {B, T, d}};
    check_parts(c.full(), {"'dv'", "'dq'", "overlap"});
  }
  SUBCASE("a gradient on an input") {
    c.dy = {c.at + 400, {B, T, d}};
    check_parts(c.full(), {"'dv'", "'dy'", "overlap", "0 bytes"});
  }
  SUBCASE("a factor's gradient on the other's") {
    c.dfactor = {c.at + 801, {H, T, rank}};
    check_parts(c.factorized(), {"'dbias.v'", "'dbias.u'", "4 bytes"});
  }
  SUBCASE("dfilter on dk") {
    c.dfilter = {c.at + 204, {H, 3}};
    check_parts(c.conv(), {"'dfilter'", "'dk'"});
  }
}

TEST_CASE("no_grad stands for any gradient, and nothing is written for it") {
  backward_call c;
  const aft::dense_bias w{c.w};
  CHECK(error_of([&] {
          aft::full_backward(c.q, c.k, c.v, w, c.dy, aft::no_grad, aft::no_grad, aft::no_grad, aft::no_grad);
        }) == "no shape_error");
  CHECK(c.written.untouched());
  CHECK(error_of([&] { aft::simple_backward(c.q, c.k, c.v, c.dy, aft::no_grad, aft::no_grad, aft::no_grad); }) ==
        "no shape_error");
  CHECK(error_of([&] {
          aft::conv_backward(c.q, c.k, c.v, c.filter, c.dy, aft::no_grad, aft::no_grad, aft::no_grad, aft::no_grad);
        }) == "no shape_error");
  CHECK(c.written.untouched());
}
