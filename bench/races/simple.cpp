// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

namespace aft_bench {
namespace {

/// 268 MB of q, k, v and y: memory, whatever the caches.
constexpr shape large{32, 1024, 512};
/// 16.8 MB of them: a third-level cache of 32 MB.
constexpr shape cached{2, 1024, 512};

template <class T>
race simple(const shape& s) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  race r;
  r.hold(x);
  const std::size_t bytes = static_cast<std::size_t>(s.size()) * sizeof(T);
  r.enter("aft", [=] { aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y)); });
  r.enter("aft_causal", [=] {
    aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y), aft::options{.causal = true});
  });
  for (const char* name : {"bytes.aft", "bytes.aft_causal"}) r.note(name, 4.0 * static_cast<double>(bytes));
  for (const char* name : {"flops.aft", "flops.aft_causal"}) r.note(name, 4.0 * static_cast<double>(s.size()));
  enter_streams(r, 3, 1, bytes, threads);
  if (peers::present() && sizeof(T) != 8) {
    const std::shared_ptr<peers> others = share(*x);
    r.hold(others);
    others->enter(r, "sdpa", {.kind = "sdpa"});
    others->enter(r, "eager", {.kind = "simple"});
    others->enter(r, "eager_causal", {.kind = "simple", .causal = true});
    aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y));
    r.note("difference.eager", others->difference("eager", x->y));
  }
  return r;
}

/// From q, k, v and dy alone, seven arrays; and with what the forward call has left behind, nine.
template <class T>
race simple_backward(const shape& s, bool causal) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  x->make_gradients();
  aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y), x->kept(causal));
  race r;
  r.hold(x);
  const std::size_t bytes = static_cast<std::size_t>(s.size()) * sizeof(T);
  const auto enter = [&](const char* name, const aft::options& options) {
    r.enter(name, [=] {
      aft::simple_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->in(x->dy), x->out(x->dq), x->out(x->dk),
                           x->out(x->dv), options);
    });
    r.note(std::string("bytes.") + name, (options.lse ? 9.0 : 7.0) * static_cast<double>(bytes));
  };
  enter("aft", aft::options{.causal = causal});
  enter("aft_given", x->kept(causal));
  enter_streams(r, 4, 3, bytes, threads);
  return r;
}

}  // namespace

void add_simple() {
  for (const shape& s : {large, cached, shapes[0], shapes[1], shapes[2], shapes[3]}) {
    add_race("simple/" + s.text() + "/float", 15, [=] { return simple<float>(s); });
    add_race("simple/" + s.text() + "/bfloat16", 11, [=] { return simple<aft::bfloat16>(s); });
  }
  add_race("simple/" + shapes[0].text() + "/double", 7, [] { return simple<double>(shapes[0]); });
  for (const shape& s : {large, cached}) {
    add_race("simple_backward/" + s.text() + "/float", 11, [=] { return simple_backward<float>(s, false); });
    add_race("simple_backward_causal/" + s.text() + "/float", 7, [=] { return simple_backward<float>(s, true); });
    add_race("simple_backward/" + s.text() + "/bfloat16", 7, [=] { return simple_backward<aft::bfloat16>(s, false); });
  }
}

}  // namespace aft_bench
