// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

namespace aft_bench {
namespace {

/// Forward and backward with the gradients of all inputs, as a step of training asks for them.
void enter_peers(race& r, const sequences<float>& x, const peers::call& eager) {
  if (!peers::present()) return;
  const std::shared_ptr<peers> others = share(x);
  r.hold(others);
  others->enter(r, "sdpa", {.kind = "sdpa", .training = true});
  others->enter(r, "sdpa_causal", {.kind = "sdpa", .causal = true, .training = true});
  others->enter(r, "eager", eager);
}

race full(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<sequences<float>>(s);
  x->make_bias();
  x->make_gradients();
  race r;
  r.hold(x);
  const auto enter = [&](const char* name, bool causal) {
    r.enter(name, [=] {
      const aft::options kept = x->kept(causal);
      aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y), kept);
      aft::full_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->in(x->dy), x->out(x->dq),
                         x->out(x->dk), x->out(x->dv), x->dbias(), kept);
    });
  };
  enter("aft", false);
  enter("aft_causal", true);
  r.note("flops.aft", 3.0 * full_product(s).flops());
  enter_peers(r, *x, {.kind = "full", .training = true});
  return r;
}

race local(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const aft::window window = aft::window::strict(32);
  const auto x = std::make_shared<sequences<float>>(s);
  x->make_bias();
  x->make_gradients();
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::local(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->out(x->y), x->kept());
    aft::local_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->in(x->dy), x->out(x->dq),
                        x->out(x->dk), x->out(x->dv), x->dbias(), x->kept());
  });
  enter_peers(r, *x, {.kind = "local", .training = true, .window = 32});
  return r;
}

race simple(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<sequences<float>>(s);
  x->make_gradients();
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y), x->kept());
    aft::simple_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->in(x->dy), x->out(x->dq), x->out(x->dk),
                         x->out(x->dv), x->kept());
  });
  enter_peers(r, *x, {.kind = "simple", .training = true});
  return r;
}

}  // namespace

void add_training() {
  for (const shape& s : shapes) {
    add_race("full_training/" + s.text() + "/float", 7, [s] { return full(s); });
    add_race("local32_training/" + s.text() + "/float", 7, [s] { return local(s); });
    add_race("simple_training/" + s.text() + "/float", 7, [s] { return simple(s); });
  }
}

}  // namespace aft_bench
