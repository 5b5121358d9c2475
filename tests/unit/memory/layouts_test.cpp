// SPDX-License-Identifier: Apache-2.0
// Any strides for inputs and outputs. The harness fills the gaps of inputs with NaN and watches those of outputs.
#include <doctest/doctest.h>

#include "engines/engines.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

constexpr layout input_layouts[] = {layout::row_major, layout::padded,      layout::channels_first, layout::misaligned,
                                    layout::reversed,  layout::interleaved, layout::broadcast,      layout::time_first};
constexpr layout output_layouts[] = {layout::row_major, layout::padded,      layout::channels_first, layout::misaligned,
                                     layout::reversed,  layout::interleaved, layout::time_first};

/// One call per algorithm, with extents that leave part of a vector over, and some with keys that do not: rows of
/// their bias may be read where they lie, where nothing hides pairs.
std::vector<setup> calls() {
  return {
      {.B = 2, .Tq = 17, .Tk = 32, .d = 4, .H = 2, .bias = bias_form::dense_bhtt},
      {.B = 2, .Tq = 19, .Tk = 16, .d = 4, .H = 2, .causal = true},
      {.B = 2, .Tq = 17, .Tk = 16, .d = 4, .H = 2, .mask = mask_form::batch_pairs},
      {.B = 3, .Tq = 19, .Tk = 21, .d = 6, .H = 3},
      {.B = 2, .Tq = 18, .Tk = 18, .d = 20, .H = 2, .bias = bias_form::factorized_htn, .causal = true},
      {.B = 2,
       .Tq = 9,
       .Tk = 9,
       .d = 4,
       .H = 2,
       .bias = bias_form::dense_bhtt,
       .mask = mask_form::batch_pairs,
       .lengths = true},
      {.call = op::local, .B = 2, .Tq = 20, .Tk = 20, .d = 6, .H = 2, .bias = bias_form::banded_htj, .win = {3, 2}},
      {.call = op::local, .B = 2, .Tq = 37, .Tk = 37, .d = 4, .H = 2, .bias = bias_form::dense_bhtt, .win = {5, 9}},
      {.call = op::local, .B = 3, .Tq = 37, .Tk = 37, .d = 45, .bias = bias_form::banded_tj, .win = {5, 5}},
      {.B = 3, .Tq = 33, .Tk = 20, .d = 45, .bias = bias_form::dense_tt},
      {.call = op::simple, .B = 2, .Tq = 20, .Tk = 20, .d = 18, .hk = 6, .mask = mask_form::keys},
      {.call = op::simple, .B = 2, .Tq = 20, .Tk = 20, .d = 18, .causal = true},
      {.call = op::conv, .B = 2, .d = 6, .hk = 3, .H = 3, .grid = {19}, .taps = {4}, .causal = true},
      {.call = op::conv, .B = 2, .d = 18, .H = 18, .grid = {4, 5}, .taps = {3, 2}, .mask = mask_form::pairs},
      {.call = op::conv, .B = 2, .d = 6, .hk = 2, .H = 2, .grid = {2, 3, 4}, .taps = {3, 2, 3}},
  };
}

}  // namespace

TEST_CASE("layouts: every input layout gives the right result") {
  for (setup s : calls())
    for (layout in : input_layouts) {
      s.inputs = in;
      check(s);
    }
}

TEST_CASE("layouts: every output layout is written where it should be and nowhere else") {
  for (setup s : calls())
    for (layout out : output_layouts) {
      s.outputs = out;
      check(s);
    }
}

TEST_CASE("layouts: rows of several batch elements side by side, where some vectors have idle lanes") {
  // 2000 positions: a group of lane tiles then ends in the next batch element, with such a vector in its middle.
  for (index_t T : {index_t(40), index_t(2000)}) {
    if (on_device() && T > 40) continue;  // a device has no lane tiles
    setup s{.call = op::local, .B = 2, .Tq = T, .Tk = T, .d = 45, .bias = bias_form::banded_tj, .win = {5, 5}};
    setup other = s;
    other.inputs = other.outputs = layout::time_first;
    const numbers x = random_numbers(s);
    for (auto type : all_types) {
      if (watched() && T > 40 && type != aft::dtype::f32 && type != aft::dtype::bf16) continue;  // the same addresses
      for (bool save : {false, true}) {
        s.save = other.save = save;
        CHECK(first_difference(run_forward(type, s, x), run_forward(type, other, x)) == "");
      }
      CHECK(first_difference(run_backward(type, s, x), run_backward(type, other, x)) == "");
    }
  }
}

TEST_CASE("layouts: the layout of inputs and outputs does not change a bit of the result") {
  for (setup s : calls()) {
    const numbers x = random_numbers(s);
    s.inputs = s.outputs = layout::row_major;
    for (auto type : all_types) {
      if (!concerns(type, s)) continue;
      const results forward = run_forward(type, s, x);
      const results backward = run_backward(type, s, x);
      for (layout form : output_layouts) {
        setup other = s;
        other.inputs = other.outputs = form;
        CAPTURE(describe(other, type));
        CHECK(first_difference(forward, run_forward(type, other, x)) == "");
        CHECK(first_difference(backward, run_backward(type, other, x)) == "");
      }
    }
  }
}

TEST_CASE("layouts: a stride that leads to no element may be any number") {
  // Each axis of a call at a time, and then all, has one index or none; undefined behaviour is the sanitizers' to find.
  const auto few = [](setup s, int axis, index_t extent) {
    if (axis == 0 || axis == 4) s.B = extent;
    if (axis == 1 || axis == 4) s.Tq = extent;
    if (axis == 2 || axis == 4) s.Tk = extent;
    if (axis == 3 || axis == 4) s.H = s.hk = s.d = s.n = extent;
    if (extent == 0) s.H = s.n = 1;
    if (s.call == op::local) s.Tk = s.Tq;
    if (axis == 1 || axis == 4) s.grid = std::vector<index_t>(s.grid.size(), extent);
    if (axis == 2 || axis == 4) s.taps = std::vector<index_t>(s.taps.size(), extent);
    return s;
  };
  for (const setup& ordinary : calls())
    for (int axis = 0; axis <= 4; ++axis)
      for (index_t extent : {index_t(1), index_t(0)}) {
        setup s = few(ordinary, axis, extent);
        const numbers x = random_numbers(s);
        for (auto type : all_types) {
          if (!concerns(type, s)) continue;
          s.inputs = s.outputs = layout::row_major;
          const results forward = run_forward(type, s, x);
          const results backward = run_backward(type, s, x);
          for (layout form : {layout::unused_high, layout::unused_low}) {
            s.inputs = s.outputs = form;
            CAPTURE(describe(s, type));
            CHECK(first_difference(forward, run_forward(type, s, x)) == "");
            CHECK(first_difference(backward, run_backward(type, s, x)) == "");
          }
        }
      }
}

TEST_CASE("layouts: y may be exactly q, in any layout") {
  for (setup s : calls())
    for (layout out : output_layouts) {
      s.outputs = out;
      s.in_place = true;
      const numbers x = random_numbers(s);
      for (auto type : all_types) check_forward(type, s, x);
    }
}

TEST_CASE("layouts: lse and average that nobody asked for change nothing") {
  for (setup s : calls()) {
    const numbers x = random_numbers(s);
    for (auto type : all_types) {
      if (!concerns(type, s)) continue;
      s.save = true;
      const auto with = run_forward(type, s, x);
      s.save = false;
      check_forward(type, s, x);
      CAPTURE(describe(s, type));
      // Where products of bfloat16 are allowed to a call for y alone, both results were held to their own bounds.
      CHECK((pair_error(type, s) > 0 || with.y == run_forward(type, s, x).y));
    }
  }
}
