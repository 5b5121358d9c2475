// SPDX-License-Identifier: Apache-2.0
// What more threads bring, and that they never cost: all numbers of threads in one race.
#include <algorithm>
#include <thread>

#include "races.hpp"

namespace aft_bench {
namespace {

int most_threads() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

template <class Call>
void enter_all(race& r, const std::string& prefix, const Call& call) {
  for (int n = 1; n <= most_threads(); ++n) {
    std::string name = prefix;
    r.enter(name.append("_").append(std::to_string(n)), call(n));
  }
}

race scaling(const std::string& what, const shape& s) {
  const auto x = std::make_shared<sequences<float>>(s);
  x->make_bias();
  if (what == "full_backward") x->make_gradients();
  race r;
  r.hold(x);
  const aft::window window = aft::window::strict(32);
  enter_all(r, "aft", [=](int n) -> std::function<void()> {
    const aft::cpu exec{.threads = n};
    if (what == "full") return [=] { aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y)); };
    if (what == "local32")
      return [=] { aft::local(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), window, x->out(x->y)); };
    if (what == "simple") return [=] { aft::simple(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->out(x->y)); };
    return [=] {
      aft::full_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->in(x->dy), x->out(x->dq),
                         x->out(x->dk), x->out(x->dv), x->dbias());
    };
  });
  if (s.T < 1024) return r;
  if (what == "simple") {
    const std::size_t bytes = static_cast<std::size_t>(s.size()) * sizeof(float);
    enter_all(r, "stream", [=](int n) { return stream(3, 1, bytes, n, true); });
  } else {
    enter_all(r, "sgemm", [=](int n) { return sgemm(full_product(s), n); });
  }
  return r;
}

}  // namespace

void add_threads() {
  for (const char* what : {"full", "local32", "simple", "full_backward"}) {
    for (const shape& s : {shape{1, 64, 64}, shape{1, 256, 64}, shape{8, 1024, 512}, shape{1, 4096, 512}}) {
      std::string name = "threads_";
      add_race(name.append(what).append("/").append(s.text()).append("/float"), 7, [=] { return scaling(what, s); });
    }
  }
}

}  // namespace aft_bench
