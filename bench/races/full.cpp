// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

namespace aft_bench {
namespace {

constexpr index_t rank = 64;

template <class T>
race full(const shape& s) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  x->make_bias();
  x->make_factors(rank);
  race r;
  r.hold(x);
  r.enter("aft", [=] { aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y)); });
  r.enter("aft_causal", [=] {
    aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y), aft::options{.causal = true});
  });
  r.enter("aft_factorized",
          [=] { aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->factors(), x->out(x->y)); });
  const product p = full_product(s);
  r.note("flops.aft", p.flops());
  r.note("flops.aft_causal", p.flops() * static_cast<double>(s.T + 1) / (2.0 * static_cast<double>(s.T)));
  r.note("flops.aft_factorized", p.flops() + 2.0 * static_cast<double>(s.T * s.T * rank));
  r.note("bytes.aft", static_cast<double>(sizeof(T)) * static_cast<double>(4 * s.size() + s.T * s.T));
  if constexpr (sizeof(T) == 4) enter_sgemm(r, p, threads);
  if constexpr (sizeof(T) == 2) enter_matmul(r, p, threads);
  if (peers::present() && sizeof(T) != 8) {
    const std::shared_ptr<peers> others = share(*x);
    r.hold(others);
    others->enter(r, "sdpa", {.kind = "sdpa"});
    others->enter(r, "sdpa_causal", {.kind = "sdpa", .causal = true});
    others->enter(r, "eager", {.kind = "full"});
    others->enter(r, "eager_causal", {.kind = "full", .causal = true});
    aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y));
    r.note("difference.eager", others->difference("eager", x->y));
  }
  return r;
}

}  // namespace

void add_full() {
  for (const shape& s : shapes) {
    add_race("full/" + s.text() + "/float", 11, [s] { return full<float>(s); });
    add_race("full/" + s.text() + "/bfloat16", 11, [s] { return full<aft::bfloat16>(s); });
  }
  add_race("full/" + shapes[0].text() + "/double", 5, [] { return full<double>(shapes[0]); });
}

}  // namespace aft_bench
