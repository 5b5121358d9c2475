// SPDX-License-Identifier: Apache-2.0
// What a call costs before it does any work: one position, and what is left of a short sequence's time when the cost of
// one more sequence in the batch is taken away.
#include "races.hpp"

namespace aft_bench {
namespace {

using call = std::function<void(sequences<float>&, const buffer<float>&)>;

race small(const call& run) {
  race r;
  const auto enter = [&](const char* name, const shape& s) {
    const auto x = std::make_shared<sequences<float>>(s);
    x->make_bias();
    const auto filter = std::make_shared<buffer<float>>(normal_values<float>(7, 9));
    r.enter(name, [=] { run(*x, *filter); });
  };
  enter("aft_T1", {1, 1, 64});
  enter("aft_B1", {1, 64, 64});
  enter("aft_B9", {9, 64, 64});
  return r;
}

}  // namespace

void add_small_calls() {
  const aft::cpu exec{.threads = 1};
  const auto add = [](const char* name, const call& run) {
    std::string full = "small/";
    add_race(full.append(name).append("/float"), 15, [run] { return small(run); });
  };
  add("full", [=](sequences<float>& x, const buffer<float>&) {
    aft::full(exec, x.in(x.q), x.in(x.k), x.in(x.v), x.bias(), x.out(x.y));
  });
  add("local8", [=](sequences<float>& x, const buffer<float>&) {
    aft::local(exec, x.in(x.q), x.in(x.k), x.in(x.v), x.bias(), aft::window::strict(8), x.out(x.y));
  });
  add("simple", [=](sequences<float>& x, const buffer<float>&) {
    aft::simple(exec, x.in(x.q), x.in(x.k), x.in(x.v), x.out(x.y));
  });
  add("conv7", [=](sequences<float>& x, const buffer<float>& filter) {
    const aft::tensor_view<const float, 2> r{filter.data(), {1, 7}};
    aft::conv(exec, x.in(x.q), x.in(x.k), x.in(x.v), r, x.out(x.y));
  });
}

}  // namespace aft_bench
