// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>

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
  if constexpr (sizeof(T) == 2) {
    // What a training step asks for besides.
    const auto lse = std::make_shared<buffer<float>>(s.size()), average = std::make_shared<buffer<float>>(s.size());
    r.enter("aft_saved", [=] {
      aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->bias(), x->out(x->y),
                aft::options{.lse = x->out(*lse), .average = x->out(*average)});
    });
  }
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

/// ALiBi (Press et al., arXiv 2108.12409): slopes 2^(-8 (h + 1) / H) times the distance.
struct alibi {
  index_t heads;
  void operator()(index_t, index_t h, index_t t, index_t s0, std::span<float> row) const noexcept {
    const float slope = std::exp2(-8.0F * static_cast<float>(h + 1) / static_cast<float>(heads));
    const float first = static_cast<float>(s0 - t);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = slope * (first + static_cast<float>(i));
  }
};

/// A bias that is made while it is needed, against the same numbers stored.
race generated(const shape& s, index_t heads) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<sequences<float>>(s);
  x->w = buffer<float>(heads * s.T * s.T);
  const alibi bias{heads};
  for (index_t h = 0; h < heads; ++h)
    for (index_t t = 0; t < s.T; ++t)
      bias(0, h, t, 0, {x->w.data() + (h * s.T + t) * s.T, static_cast<std::size_t>(s.T)});
  const auto call = [=](const auto& w) {
    aft::full(exec, x->in(x->q), x->in(x->k), x->in(x->v), w, x->out(x->y), aft::options{.causal = true});
  };
  const aft::dense_bias dense{aft::tensor_view<const float, 3>{x->w.data(), {heads, s.T, s.T}}};
  race r;
  r.enter("aft_dense", [=] { call(dense); });
  r.enter("aft_generated", [=] { call(aft::generated_bias{heads, bias}); });
  return r;
}

}  // namespace

void add_full() {
  for (const shape& s : shapes) {
    add_race("full/" + s.text() + "/float", 11, [s] { return full<float>(s); });
    add_race("full/" + s.text() + "/bfloat16", 11, [s] { return full<aft::bfloat16>(s); });
  }
  add_race("full/" + shapes[0].text() + "/double", 5, [] { return full<double>(shapes[0]); });
  for (const auto& [s, heads] : {std::pair{shape{1, 4096, 64}, index_t{1}}, {shapes[3], 8}}) {
    const shape of = s;
    const index_t count = heads;
    std::string name = "generated/";
    name.append(of.text()).append("_H").append(std::to_string(count)).append("/float");
    add_race(name, 9, [=] { return generated(of, count); });
  }
}

}  // namespace aft_bench
