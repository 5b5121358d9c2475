// SPDX-License-Identifier: Apache-2.0
// Every option by itself: each operator with one thing that is not the default, in all types, forward and backward.
// docs/support.md lists what was compared here, so a line of that page is never the merit of another option beside it.
#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "harness/harness.hpp"

using namespace aft::test;

namespace {

setup plain(op call) {
  setup s;
  s.call = call;
  s.save = false;
  s.win = {2, 1};
  if (call == op::conv) {
    s.grid = {7};
    s.taps = {3};
  }
  return s;
}

using change = std::function<void(setup&)>;

template <class T>
change set(T setup::*member, T value) {
  return [=](setup& s) { s.*member = value; };
}

/// What all operators have.
const std::vector<change>& common_changes() {
  static const std::vector<change> all{
      [](setup&) {},
      set(&setup::gate_fn, aft::gate::none),
      set(&setup::gate_fn, aft::gate::identity),
      set(&setup::gate_fn, aft::gate::relu),
      set(&setup::gate_fn, aft::gate::tanh),
      set(&setup::gate_fn, aft::gate::silu),
      set(&setup::hk, aft::index_t{2}),
      set(&setup::causal, true),
      set(&setup::mask, mask_form::batch_keys),
      set(&setup::mask, mask_form::batch_pairs),
      set(&setup::lengths, true),
      set(&setup::query_lengths, true),
      set(&setup::first_query, aft::index_t{2}),
      set(&setup::packed, std::vector<aft::index_t>{4, 0, 6, 1}),
      set(&setup::save, true),
      set(&setup::arithmetic, aft::arithmetic::full),
      set(&setup::in_place, true),
      set(&setup::inputs, layout::broadcast),
      set(&setup::inputs, layout::padded),
      [](setup& s) { s.lengths = s.narrow_integers = true; },
      [](setup& s) { s.save = s.narrow_average = true; },
      [](setup& s) { (s.call == op::conv ? s.queries : s.Tq) = 5; },
      // A stream is causal, and what is new is query and key at once.
      [](setup& s) {
        s.causal = true;
        s.Tq = s.Tk;
        s.cuts = {2, 1, s.Tk};
      },
  };
  return all;
}

std::vector<change> changes_of(op call) {
  std::vector<change> all = common_changes();
  const auto add = [&](auto member, auto... values) { (all.push_back(set(member, values)), ...); };
  if (call != op::simple) add(&setup::H, aft::index_t{2});
  if (call == op::full || call == op::local) add(&setup::bias, bias_form::dense_bhtt, bias_form::factorized_htn);
  if (call == op::full || call == op::local) {
    add(&setup::generated, true);
    // What these two do with one is of their own.
    all.emplace_back([](setup& s) { s.generated = true, s.packed = {4, 0, 6, 1}; });
    all.emplace_back([](setup& s) { s.generated = s.causal = true, s.cuts = {3, 1, 2, 1}; });
  }
  if (call == op::local) add(&setup::bias, bias_form::banded_htj);
  if (call == op::local || call == op::conv) add(&setup::outside, aft::outside::excluded);
  if (call == op::conv) {
    all.emplace_back([](setup& s) { s.grid = {4, 3}, s.taps = {3, 2}; });
    all.emplace_back([](setup& s) { s.grid = {3, 2, 3}, s.taps = {2, 2, 3}; });
  }
  return all;
}

void check_each(op call) {
  for (const change& apply : changes_of(call)) {
    setup s = plain(call);
    apply(s);
    check(s);
  }
}

}  // namespace

TEST_CASE("full with one option") {
  check_each(op::full);
}

TEST_CASE("local with one option") {
  check_each(op::local);
}

TEST_CASE("simple with one option") {
  check_each(op::simple);
}

TEST_CASE("conv with one option") {
  check_each(op::conv);
}
