// SPDX-License-Identifier: Apache-2.0
// The launch layer on the emulated device: what a call allocates, what it says when the device fails, and what it
// leaves behind.
#include <doctest/doctest.h>

#include <aft/aft.hpp>
#include <device_emulator.hpp>

#include "engines/own_engine.hpp"
#include "harness/harness.hpp"
#include "memory.hpp"

using namespace aft::test;
using aft::index_t;
namespace emulator = aft::emulator;

namespace {

/// One call per operator and form of bias, and two that are large enough for tensor cores.
std::vector<setup> calls() {
  const setup base{.B = 2, .Tq = 20, .Tk = 20, .d = 6, .hk = 3, .H = 3, .win = {4, 3}, .grid = {20}, .taps = {5}};
  std::vector<setup> all;
  for (auto [call, form] : {std::pair<op, bias_form>{op::full, bias_form::dense_htt},
                            {op::full, bias_form::factorized_htn},
                            {op::local, bias_form::banded_htj},
                            {op::simple, bias_form::dense_htt},
                            {op::conv, bias_form::dense_htt}}) {
    all.push_back(base);
    all.back().call = call;
    all.back().bias = form;
  }
  for (auto form : {bias_form::dense_htt, bias_form::factorized_htn})
    all.push_back({.B = 1, .Tq = 64, .Tk = 64, .d = 32, .H = 2, .bias = form});
  return all;
}

struct tensors {
  static constexpr index_t B = 1, T = 8, d = 4;
  std::vector<float> q, k, v, y, dq;
  tensors() : q(B * T * d, 1.0f), k(q), v(q), y(q.size(), 7.0f), dq(q.size(), 7.0f) {}
  template <class T_>
  static aft::tensor_view<T_, 3, aft::device_space> view(T_* p) {
    return {p, {B, T, d}};
  }
  void forward() {
    aft::simple(aft::cuda{}, view<const float>(q.data()), view<const float>(k.data()), view<const float>(v.data()),
                view(y.data()));
  }
};

template <class F>
std::string device_error_of(F call) {
  try {
    call();
  } catch (const aft::device_error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("launch: scratch is given back, in every type, with lse and average saved or not") {
  for (setup s : calls())
    for (bool save : {true, false})
      for (auto type : all_types) {
        s.save = save;
        const numbers x = random_numbers(s);
        (void)run_forward(type, s, x, aft::cuda{});
        (void)run_backward(type, s, x, aft::cuda{});
        CHECK(emulator::memory().in_use == 0);
      }
}

TEST_CASE("launch: a call that is refused its scratch launches nothing, leaks nothing and leaves the outputs alone") {
  for (const setup& s : calls())
    for (bool backward : {false, true}) {
      const numbers x = random_numbers(s);
      // A backward test with saved rows begins with a forward call of its own; without, the first is the call itself.
      setup own = s;
      own.save = false;
      CAPTURE(describe(completed(own), aft::dtype::f32));
      const long launches = emulator::memory().launches;
      emulator::fail_allocation(0);
      const results r = backward ? run_backward(aft::dtype::f32, own, x, aft::cuda{})
                                 : run_forward(aft::dtype::f32, own, x, aft::cuda{});
      emulator::fail_allocation(-1);
      CHECK(r.failed);
      CHECK(r.damage == "");
      CHECK(emulator::memory().launches == launches);
      CHECK(emulator::memory().in_use == 0);
      check_forward(aft::dtype::f32, own, x);
    }
}

TEST_CASE("launch: one allocation a call") {
  for (setup s : calls()) {
    s.save = false;
    const numbers x = random_numbers(s);
    const long before = emulator::memory().allocations;
    (void)run_backward(aft::dtype::f32, s, x, aft::cuda{});
    CHECK(emulator::memory().allocations == before + 1);
  }
}

TEST_CASE("launch: a failed launch, whichever it is, is a device_error with the call's name, and leaks nothing") {
  for (const setup& s : calls())
    for (bool backward : {false, true}) {
      setup own = s;
      own.save = false;
      const numbers x = random_numbers(own);
      CAPTURE(describe(completed(own), aft::dtype::f32));
      bool failed = true;
      for (long nth = 0; failed; ++nth) {
        REQUIRE(nth < 100);
        emulator::fail_launch(nth);
        failed = (backward ? run_backward(aft::dtype::f32, own, x, aft::cuda{})
                           : run_forward(aft::dtype::f32, own, x, aft::cuda{}))
                     .failed;
        emulator::fail_launch(-1);
        CHECK(emulator::memory().in_use == 0);
      }
    }
}

TEST_CASE("launch: errors name the call, what it was doing, and CUDA's error") {
  tensors x;
  emulator::fail_allocation(0);
  std::string error = device_error_of([&] { x.forward(); });
  emulator::fail_allocation(-1);
  CHECK(error == "aft::simple: allocating scratch: cudaErrorMemoryAllocation (out of memory)");
  CHECK(x.y == std::vector<float>(x.y.size(), 7.0f));
  emulator::fail_launch(0);
  error = device_error_of([&] { x.forward(); });
  emulator::fail_launch(-1);
  CHECK(error == "aft::simple: launching a kernel: cudaErrorLaunchFailure (unspecified launch failure)");
  x.forward();
  CHECK(x.y[0] == doctest::Approx(0.7310586f));
}

TEST_CASE("launch: a bad shape is a shape_error before anything happens on the device") {
  tensors x;
  const long launches = emulator::memory().launches;
  const aft::tensor_view<const float, 3, aft::device_space> short_k{x.k.data(), {1, 7, 4}};
  const auto q = tensors::view<const float>(x.q.data());
  const aft::tensor_view<const float, 2, aft::device_space> w{x.v.data(), {5, 5}};
  CHECK_THROWS_AS(aft::full(aft::cuda{}, q, short_k, q, aft::dense_bias{w}, tensors::view(x.y.data())),
                  aft::shape_error);
  CHECK(emulator::memory().launches == launches);
}

TEST_CASE("launch: an executor is not needed where views say where they are") {
  tensors x;
  aft::simple(tensors::view<const float>(x.q.data()), tensors::view<const float>(x.k.data()),
              tensors::view<const float>(x.v.data()), tensors::view(x.y.data()));
  CHECK(x.y[5] == doctest::Approx(0.7310586f));
}

TEST_CASE("launch: calls without elements launch nothing that would read or write") {
  for (index_t B : {0, 2})
    for (index_t d : {0, 4})
      for (index_t T : {0, 3}) {
        if (B > 0 && d > 0 && T > 0) continue;
        for (op call : {op::full, op::local, op::simple, op::conv}) {
          const setup s{.call = call, .B = B, .Tq = T, .Tk = T, .d = d, .win = {1, 1}, .grid = {T}, .taps = {3}};
          const numbers x = random_numbers(s);
          check_forward(aft::dtype::f32, s, x);
          check_backward(aft::dtype::f32, s, x);
        }
      }
}
