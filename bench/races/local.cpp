// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

namespace aft_bench {
namespace {

/// The ceiling of a window: its sums as fast as a matrix product, or its arrays as fast as a stream, whichever is
/// slower.
template <class T>
void enter_roof(race& r, const shape& s, int reads, int writes, int threads) {
  const product p = full_product(s);
  if constexpr (sizeof(T) == 4) enter_sgemm(r, p, threads);
  if constexpr (sizeof(T) == 2) enter_matmul(r, p, threads);
  enter_streams(r, reads, writes, static_cast<std::size_t>(s.size()) * sizeof(T), threads);
}

template <class T>
race local(const shape& s, const aft::window& window, bool both_orders) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  x->make_bias();
  race r;
  r.hold(x);
  const auto enter = [&](const char* name, bool causal) {
    r.enter(name, [=] {
      aft::local(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->out(x->y),
                 aft::options{.causal = causal});
    });
    const index_t pairs = window_pairs(s.T, window.before, causal ? 0 : window.after);
    r.note(std::string("flops.") + name, pair_flops(static_cast<double>(pairs), s.B * s.d));
    r.note(std::string("bytes.") + name, static_cast<double>(sizeof(T)) * static_cast<double>(4 * s.size() + pairs));
  };
  if (both_orders) enter("aft", false);
  enter("aft_causal", true);
  enter_roof<T>(r, s, 3, 1, threads);
  if (peers::present() && sizeof(T) != 8) {
    const std::shared_ptr<peers> others = share(*x);
    r.hold(others);
    const index_t width = window.before + 1;
    if (both_orders) {
      others->enter(r, "sdpa", {.kind = "sdpa"});
      others->enter(r, "eager", {.kind = "local", .window = width});
      aft::local(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->out(x->y));
      r.note("difference.eager", others->difference("eager", x->y));
    } else {
      others->enter(r, "sdpa_causal", {.kind = "sdpa", .causal = true});
      others->enter(r, "eager_causal", {.kind = "local", .causal = true, .window = width});
    }
  }
  return r;
}

template <class T>
race local_backward(const shape& s, const aft::window& window) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  x->make_bias();
  x->make_gradients();
  aft::local(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->out(x->y), x->kept());
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::local_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->in(x->dy), x->out(x->dq),
                        x->out(x->dk), x->out(x->dv), x->dbias(), x->kept());
  });
  const index_t pairs = window_pairs(s.T, window.before, window.after);
  // Sums over queries and the bias's gradient: twice the forward pass.
  r.note("flops.aft", 2.0 * pair_flops(static_cast<double>(pairs), s.B * s.d));
  r.note("bytes.aft", static_cast<double>(sizeof(T)) * static_cast<double>(9 * s.size() + s.T * s.T + pairs));
  enter_roof<T>(r, s, 6, 3, threads);
  return r;
}

}  // namespace

void add_local() {
  const aft::window near = aft::window::strict(32), far = aft::window::strict(256);
  for (const shape& s : shapes) {
    add_race("local32/" + s.text() + "/float", 15, [=] { return local<float>(s, near, true); });
    add_race("local32/" + s.text() + "/bfloat16", 11, [=] { return local<aft::bfloat16>(s, near, true); });
    // A window of 256 hides nothing of 197 positions.
    if (s.T > 256) add_race("local256/" + s.text() + "/float", 11, [=] { return local<float>(s, far, false); });
    add_race("local32_backward/" + s.text() + "/float", 11, [=] { return local_backward<float>(s, near); });
    add_race("local32_backward/" + s.text() + "/bfloat16", 7, [=] { return local_backward<aft::bfloat16>(s, near); });
  }
  add_race("local32/" + shapes[0].text() + "/double", 5, [=] { return local<double>(shapes[0], near, true); });
}

}  // namespace aft_bench
