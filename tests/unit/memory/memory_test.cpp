// SPDX-License-Identifier: Apache-2.0
// Scratch comes from the caller's resource, goes back to it whatever happens, and outputs stay whole when it fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>
#if defined(AFT_TEST_GLIBC_MALLOC)
#include <malloc.h>
#endif

#include "engines/engine.hpp"
#include "engines/engines.hpp"
#include "harness/harness.hpp"
#include "memory.hpp"

using namespace aft::test;
using aft::index_t;

extern "C" int aft_widest_team();
/// For the leak checker, see support/main.cpp.
extern "C" int aft_widest_team() {
  return 256;
}

namespace {

/// One call per algorithm.
std::vector<setup> calls() {
  return {
      {.B = 2, .Tq = 40, .Tk = 30, .d = 20, .H = 2},
      {.B = 2, .Tq = 40, .Tk = 40, .d = 20, .hk = 4, .H = 2, .bias = bias_form::factorized_htn, .causal = true},
      {.B = 2, .Tq = 20, .Tk = 20, .d = 8, .H = 2, .mask = mask_form::batch_pairs, .k_scale = 60, .w_scale = 60},
      {.call = op::local, .B = 2, .Tq = 60, .Tk = 60, .d = 8, .H = 2, .bias = bias_form::banded_htj, .win = {4, 4}},
      {.call = op::local, .B = 2, .Tq = 60, .Tk = 60, .d = 8, .H = 2, .bias = bias_form::factorized_htn, .win = {9, 0}},
      {.call = op::simple, .B = 2, .Tq = 60, .Tk = 60, .d = 20},
      {.call = op::simple, .B = 2, .Tq = 60, .Tk = 60, .d = 20, .hk = 4, .causal = true},
      {.call = op::simple, .B = 3, .Tq = 60, .Tk = 60, .d = 20, .query_lengths = true},
      {.call = op::simple, .B = 3, .Tq = 60, .Tk = 60, .d = 20, .causal = true, .query_lengths = true},
      {.B = 3, .Tq = 40, .Tk = 30, .d = 20, .H = 2, .query_lengths = true},
      {.call = op::conv, .B = 3, .d = 8, .hk = 2, .H = 2, .grid = {50}, .taps = {7}, .query_lengths = true},
      {.call = op::conv, .B = 2, .d = 8, .hk = 2, .H = 2, .grid = {50}, .taps = {7}, .causal = true},
      {.call = op::conv, .B = 2, .d = 8, .H = 8, .grid = {7, 8}, .taps = {3, 5}},
      {.d = 20, .H = 2, .packed = {9, 40, 0, 3}, .packed_keys = {20, 30, 1, 0}},
      {.d = 20, .hk = 4, .H = 2, .bias = bias_form::factorized_htn, .causal = true, .packed = {9, 40, 0, 3, 8, 8}},
      {.call = op::local, .d = 8, .H = 2, .bias = bias_form::banded_htj, .win = {4, 4}, .packed = {60, 1, 9}},
      {.call = op::simple, .d = 20, .packed = {5, 60, 5, 5, 0, 5}},
      {.call = op::conv, .d = 8, .hk = 2, .H = 2, .taps = {7}, .causal = true, .packed = {50, 3, 8}},
  };
}

}  // namespace

TEST_CASE("memory: scratch goes back to the caller's resource, and the result is the same") {
  for (setup s : calls())
    for (bool save : {true, false})
      for (int threads : {1, 3})
        for (auto type : all_types) {
          s.save = save;
          CAPTURE(describe(completed(s), type));
          counting_resource memory;
          const numbers x = random_numbers(s);
          const aft::cpu exec{.threads = threads, .memory = &memory};
          CHECK(first_difference(run_forward(type, s, x, exec), run_forward(type, s, x)) == "");
          CHECK(memory.in_use() == 0);
          CHECK(first_difference(run_backward(type, s, x, exec), run_backward(type, s, x)) == "");
          CHECK(memory.in_use() == 0);
        }
}

TEST_CASE("memory: an allocation that fails, whichever it is, leaks nothing and leaves the outputs alone") {
  for (const setup& s : calls())
    for (bool backward : {false, true})
      for (auto type : {aft::dtype::f32, aft::dtype::bf16}) {
        CAPTURE(describe(completed(s), type));
        const numbers x = random_numbers(s);
        bool failed = true;
        for (long nth = 0; failed; ++nth) {
          CAPTURE(nth);
          REQUIRE(nth < 1000);
          counting_resource memory(nth);
          const aft::cpu exec{.threads = 2, .memory = &memory};
          const results r = backward ? run_backward(type, s, x, exec) : run_forward(type, s, x, exec);
          failed = memory.failed();
          CHECK(r.failed == failed);
          CHECK(r.damage == "");
          CHECK(memory.in_use() == 0);
        }
      }
}

TEST_CASE("memory: tiles take 64 MiB at most, whatever the number of threads") {
  if (watched()) return;  // other trees count bytes
  // Few lane tiles, so that threads share them: each then holds what it needs of the whole sequence.
  for (const setup& s :
       {setup{.B = 1, .Tq = 2048, .Tk = 2048, .d = 16},
        setup{.B = 1, .Tq = 2048, .Tk = 2048, .d = 16, .bias = bias_form::factorized_tn, .causal = true},
        setup{.call = op::local, .B = 8, .Tq = 1024, .Tk = 1024, .d = 16, .win = {255, 255}},
        setup{.call = op::local, .B = 1, .Tq = 2048, .Tk = 2048, .d = 64, .win = {255, 255}}}) {
    CAPTURE(describe(completed(s), aft::dtype::f32));
    const numbers x = random_numbers(s);
    const auto array = static_cast<std::size_t>(s.B * s.Tk * s.d) * sizeof(float);
    constexpr std::size_t tiles = std::size_t{64} << 20;
    for (int threads : {16, 64, 256}) {
      CAPTURE(threads);
      counting_resource forward, backward;
      run_forward(aft::dtype::f32, s, x, aft::cpu{.threads = threads, .memory = &forward});
      CHECK(forward.peak() <= tiles + 8 * array);
      run_backward(aft::dtype::f32, s, x, aft::cpu{.threads = threads, .memory = &backward});
      CHECK(backward.peak() <= tiles + 16 * array);
    }
  }
}

TEST_CASE("memory: so do the tiles of a forward call that a gradient of the bias alone asks for") {
  // The call's own buffers are then few, and held while the forward call takes its own.
  constexpr index_t B = 2, T = 1024, d = 16;
  std::vector<float> x(B * T * d, 0.5f), w(T * T, 0.25f), dw(T * T);
  const aft::tensor_view<const float, 3> in{x.data(), {B, T, d}};
  const aft::dense_bias bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
  const aft::dense_bias dbias{aft::tensor_view<float, 2>{dw.data(), {T, T}}};
  for (int threads : {64, 140, 170, 196}) {
    CAPTURE(threads);
    counting_resource memory;
    aft::full_backward(aft::cpu{.threads = threads, .memory = &memory}, in, in, in, bias, in, aft::no_grad,
                       aft::no_grad, aft::no_grad, dbias);
    CHECK(memory.peak() <= (std::size_t{64} << 20) + 16 * x.size() * sizeof(float));
  }
}

TEST_CASE("memory: y that is q keeps its old content when an allocation fails") {
  for (setup s : calls()) {
    s.in_place = true;
    const numbers x = random_numbers(s);
    counting_resource memory(0);
    const results r = run_forward(aft::dtype::f32, s, x, aft::cpu{.threads = 2, .memory = &memory});
    CHECK(r.failed == memory.failed());
    CHECK(r.damage == "");
  }
}

#if defined(AFT_TEST_GLIBC_MALLOC)
extern "C" void aft_test_looks_at_malloc();
extern "C" void aft_test_looks_at_malloc() {}

TEST_CASE("memory: what malloc has for a call serves the next ones") {
  constexpr index_t T = 400, d = 64;
  std::vector<float> x(T * d, 0.5f), w(T * T, 0.25f), y(T * d);
  const aft::tensor_view<const float, 3> in{x.data(), {1, T, d}};
  const aft::dense_bias bias{aft::tensor_view<const float, 3>{w.data(), {1, T, T}}};
  const aft::tensor_view<float, 3> out{y.data(), {1, T, d}};
  const auto held_after = [&](int calls) {
    for (int i = 0; i < calls; ++i) aft::full(aft::cpu{.threads = 1}, in, in, in, bias, out);
    const auto info = mallinfo2();
    return info.arena + info.hblkhd;
  };
  // The first block may be mapped by itself, so that malloc learns its size.
  const std::size_t held = held_after(2);
  CHECK(held_after(10) == held);
}

// glibc gives the end of its heap back once twice the largest block that it has seen is free there, and never less than
// 128 KiB. A call that takes several large blocks would clear new pages every time: conv on one image took twice as
// long.
TEST_CASE("memory: most of what a call takes is one block") {
  constexpr std::size_t least = 128 << 10;
  for (setup s : std::initializer_list<setup>{
           {.B = 1, .Tq = 300, .Tk = 300, .d = 256, .H = 2},
           {.B = 1, .Tq = 300, .Tk = 300, .d = 256, .H = 2, .bias = bias_form::factorized_htn},
           {.call = op::local, .B = 1, .Tq = 600, .Tk = 600, .d = 256, .H = 2, .win = {20, 20}},
           {.call = op::simple, .B = 1, .Tq = 2000, .Tk = 2000, .d = 128},
           {.call = op::conv, .B = 2, .d = 256, .hk = 4, .H = 4, .grid = {600}, .taps = {9}},
           {.call = op::conv, .B = 2, .d = 256, .H = 256, .grid = {600}, .taps = {9}},
       }) {
    const numbers x = random_numbers(s);
    for (const bool causal : {false, true}) {
      for (const int threads : {1, 2}) {
        s.causal = causal;
        s.save = causal == (threads == 1);
        CAPTURE(describe(completed(s), aft::dtype::f32));
        CAPTURE(threads);
        counting_resource forward, backward;
        run_forward(aft::dtype::f32, s, x, aft::cpu{.threads = threads, .memory = &forward});
        CHECK(forward.peak() <= std::max(least, 2 * forward.largest()));
        run_backward(aft::dtype::f32, s, x, aft::cpu{.threads = threads, .memory = &backward});
        CHECK(backward.peak() <= std::max(least, 2 * backward.largest()));
      }
    }
  }
}
#endif
