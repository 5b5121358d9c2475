// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

namespace aft_bench {
namespace {

/// Forward and backward with the gradients of all inputs, as a step of training asks for them.
template <class T>
void enter_peers(race& r, const sequences<T>& x, const peers::call& eager) {
  if (!peers::present()) return;
  const std::shared_ptr<peers> others = share(x);
  r.hold(others);
  others->enter(r, "sdpa", {.kind = "sdpa", .training = true});
  others->enter(r, "sdpa_causal", {.kind = "sdpa", .causal = true, .training = true});
  others->enter(r, "eager", eager);
  peers::call compiled = eager;
  compiled.compiled = true;
  others->enter(r, "compiled", compiled);
}

template <class T>
race full_training(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<sequences<T>>(s);
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

template <class T>
race local_training(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const aft::window window = aft::window::strict(32);
  const auto x = std::make_shared<sequences<T>>(s);
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

template <class T>
race simple_training(const shape& s) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<sequences<T>>(s);
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

template <class T>
void add_training_of() {
  const std::string type = std::string("/") + type_name<T>();
  for (const shape& s : shapes) {
    add_race("full_training/" + s.text() + type, 7, [s] { return full_training<T>(s); });
    add_race("local32_training/" + s.text() + type, 7, [s] { return local_training<T>(s); });
    add_race("simple_training/" + s.text() + type, 7, [s] { return simple_training<T>(s); });
  }
}

}  // namespace

void add_training() {
  add_training_of<float>();
  add_training_of<aft::bfloat16>();
}

}  // namespace aft_bench
