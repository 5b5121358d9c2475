// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

#include "growth.hpp"

namespace aft_bench {
namespace {

race growth(index_t T) {
  const aft::cpu exec{.threads = run_settings().threads};
  race r;
  for (const char* name : {"full", "factorized", "local32", "simple"}) {
    const std::string what = name;
    if (what == "full" && T > longest_dense) continue;
    const auto x = std::make_shared<growth_call>(what, T);
    r.enter("aft_" + what, [=] { x->run(exec); });
  }
  if (!peers::present()) return r;
  sequences<float> x(growth_shape(T));
  if (T <= longest_eager) x.make_bias();
  const std::shared_ptr<peers> others = share(x);
  r.hold(others);
  others->enter(r, "sdpa", {.kind = "sdpa"});
  if (T <= longest_eager) others->enter(r, "eager", {.kind = "full"});
  return r;
}

}  // namespace

void add_growth() {
  // Quadratic calls take minutes at the end, where one of them is longer than any drift.
  for (const auto& [T, rounds] : {std::pair{256, 11}, {1024, 9}, {4096, 7}, {16384, 3}, {65536, 1}}) {
    const index_t length = T;
    std::string name = "growth/T";
    add_race(name.append(std::to_string(T)).append("_d512/float"), rounds, [length] { return growth(length); });
  }
}

}  // namespace aft_bench
