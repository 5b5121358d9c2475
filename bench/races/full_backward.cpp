// SPDX-License-Identifier: Apache-2.0
#include "races.hpp"

namespace aft_bench {
namespace {

/// The call that training makes: the forward call has left log-sum-exp and average behind.
template <class T>
race full_backward(const shape& s, int threads) {
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<sequences<T>>(s);
  x->make_bias();
  x->make_gradients();
  aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y), x->kept());
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::full_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->in(x->dy), x->out(x->dq),
                       x->out(x->dk), x->out(x->dv), x->dbias(), x->kept());
  });
  // Keys' sums over queries, and the bias's gradient over batch and channels.
  const product keys{.a = 'T', .m = s.T, .n = 2 * s.B * s.d, .k = s.T};
  const product bias{.b = 'T', .m = s.T, .n = s.T, .k = 2 * s.B * s.d};
  r.note("flops.aft", keys.flops() + bias.flops());
  r.note("bytes.aft", static_cast<double>(sizeof(T)) * static_cast<double>(9 * s.size() + 2 * s.T * s.T));
  const auto both = [](std::function<void()> a, std::function<void()> b) {
    return [a = std::move(a), b = std::move(b)] {
      a();
      b();
    };
  };
  if constexpr (sizeof(T) == 4) {
    r.enter("sgemm", both(sgemm(keys, threads), sgemm(bias, threads)));
    r.note("flops.sgemm", keys.flops() + bias.flops());
  }
  if constexpr (sizeof(T) == 2) {
    const std::function<void()> first = bf16_matmul(keys, threads), second = bf16_matmul(bias, threads);
    if (first && second) r.enter("matmul", both(first, second)).note("flops.matmul", keys.flops() + bias.flops());
  }
  return r;
}

}  // namespace

void add_full_backward() {
  const int threads = run_settings().threads;
  for (const shape& s : shapes) {
    add_race("full_backward/" + s.text() + "/float/one_thread", 7, [s] { return full_backward<float>(s, 1); });
    add_race("full_backward/" + s.text() + "/float", 7, [=] { return full_backward<float>(s, threads); });
    add_race("full_backward/" + s.text() + "/bfloat16", 7, [=] { return full_backward<aft::bfloat16>(s, threads); });
  }
  add_race("full_backward/" + shapes[0].text() + "/double", 3,
           [=] { return full_backward<double>(shapes[0], threads); });
}

}  // namespace aft_bench
