// SPDX-License-Identifier: Apache-2.0
// Every operator forward and backward, with the ceilings of the same shape in the same run: oneDNN's sgemm
// (T x 2Bd x T, what `full` amounts to) and a copy. Ratios between lines of one run are what counts; machines differ
// and drift. `--benchmark_format=json` for keeping, `--benchmark_enable_random_interleaving=true` against drift.
#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.h>

#include <omp.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;

struct shape {
  index_t B, T, d;
  std::string text() const { return "B" + std::to_string(B) + "_T" + std::to_string(T) + "_d" + std::to_string(d); }
};

std::vector<float> random_values(index_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& e : x) e = normal(engine);
  return x;
}

/// Everything an operator call of this shape needs, made once for all benchmarks of the shape.
struct data {
  explicit data(const shape& s)
      : B(s.B),
        T(s.T),
        d(s.d),
        q(random_values(B * T * d, 1)),
        k(random_values(B * T * d, 2)),
        v(random_values(B * T * d, 3)),
        w(random_values(T * T, 4)),
        dy(random_values(B * T * d, 5)),
        y(q),
        lse(q),
        average(q),
        dq(q),
        dk(q),
        dv(q),
        dw(w),
        product(q),
        wide(random_values(2 * B * T * d, 6)) {
    product.resize(static_cast<std::size_t>(2 * B * T * d));
  }
  aft::tensor_view<const float, 3> in(const std::vector<float>& x) const { return {x.data(), {B, T, d}}; }
  aft::tensor_view<float, 3> out(std::vector<float>& x) const { return {x.data(), {B, T, d}}; }

  index_t B, T, d;
  std::vector<float> q, k, v, w, dy, y, lse, average, dq, dk, dv, dw, product, wide;
};

aft::cpu executor(const benchmark::State& state) {
  return {.threads = static_cast<int>(state.range(0))};
}

/// `prepare` runs once before the timing: a backward call's lse and average share buffers with other benchmarks.
template <class F, class P>
void add(const std::string& name, const F& body, const P& prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body, prepare](benchmark::State& state) {
                                 prepare();
                                 for (auto _ : state) body(state);
                               })
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->MinWarmUpTime(0.1);
}

template <class F>
void add(const std::string& name, const F& body) {
  add(name, body, [] {});
}

void add_sequence(const shape& s) {
  const auto x = std::make_shared<data>(s);
  const std::string at = "/" + s.text();
  const aft::dense_bias w{aft::tensor_view<const float, 2>{x->w.data(), {s.T, s.T}}};
  const aft::dense_bias dw{aft::tensor_view<float, 2>{x->dw.data(), {s.T, s.T}}};
  const aft::options kept{.lse = x->out(x->lse), .average = x->out(x->average)};
  const aft::window near = aft::window::strict(32);
  const auto in = [x](const std::vector<float>& t) { return x->in(t); };
  const auto out = [x](std::vector<float>& t) { return x->out(t); };

  // oneDNN takes its number of threads from OpenMP; the ceiling is the whole product.
  add("sgemm" + at, [x](const benchmark::State& state) {
    omp_set_num_threads(static_cast<int>(state.range(0)));
    dnnl_sgemm('N', 'N', x->T, 2 * x->B * x->d, x->T, 1.0f, x->w.data(), x->T, x->wide.data(), 2 * x->B * x->d, 0.0f,
               x->product.data(), 2 * x->B * x->d);
  });
  // The same bytes as q, k, v, y once each.
  add("copy" + at, [x](const benchmark::State& state) {
    const int threads = static_cast<int>(state.range(0));
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; ++i) {
      const std::size_t n = x->product.size();
      const std::size_t a = n * static_cast<std::size_t>(i) / static_cast<std::size_t>(threads);
      const std::size_t e = n * static_cast<std::size_t>(i + 1) / static_cast<std::size_t>(threads);
      std::memcpy(x->product.data() + a, x->wide.data() + a, (e - a) * sizeof(float));
    }
    benchmark::ClobberMemory();
  });
  add("full" + at,
      [=](const benchmark::State& state) { aft::full(executor(state), in(x->q), in(x->k), in(x->v), w, out(x->y)); });
  add("full_causal" + at, [=](const benchmark::State& state) {
    aft::full(executor(state), in(x->q), in(x->k), in(x->v), w, out(x->y), aft::options{.causal = true});
  });
  add(
      "full_backward" + at,
      [=](const benchmark::State& state) {
        aft::full_backward(executor(state), in(x->q), in(x->k), in(x->v), w, in(x->dy), out(x->dq), out(x->dk),
                           out(x->dv), dw, kept);
      },
      [=] { aft::full(aft::cpu{}, in(x->q), in(x->k), in(x->v), w, out(x->y), kept); });
  add("local32" + at, [=](const benchmark::State& state) {
    aft::local(executor(state), in(x->q), in(x->k), in(x->v), w, near, out(x->y));
  });
  add(
      "local32_backward" + at,
      [=](const benchmark::State& state) {
        aft::local_backward(executor(state), in(x->q), in(x->k), in(x->v), w, near, in(x->dy), out(x->dq), out(x->dk),
                            out(x->dv), dw, kept);
      },
      [=] { aft::local(aft::cpu{}, in(x->q), in(x->k), in(x->v), w, near, out(x->y), kept); });
  add("simple" + at,
      [=](const benchmark::State& state) { aft::simple(executor(state), in(x->q), in(x->k), in(x->v), out(x->y)); });
  add("simple_causal" + at, [=](const benchmark::State& state) {
    aft::simple(executor(state), in(x->q), in(x->k), in(x->v), out(x->y), aft::options{.causal = true});
  });
  add(
      "simple_backward" + at,
      [=](const benchmark::State& state) {
        aft::simple_backward(executor(state), in(x->q), in(x->k), in(x->v), in(x->dy), out(x->dq), out(x->dk),
                             out(x->dv), kept);
      },
      [=] { aft::simple(aft::cpu{}, in(x->q), in(x->k), in(x->v), out(x->y), kept); });
}

/// DAFT's vision shape: 14 x 14 positions under an 11 x 11 filter, one filter a channel or one a head.
void add_grid(index_t B, index_t d, index_t H) {
  const index_t side = 14, taps = 11;
  const auto x = std::make_shared<data>(shape{B, side * side, d});
  const auto r = std::make_shared<std::vector<float>>(random_values(H * taps * taps, 7));
  const auto dr = std::make_shared<std::vector<float>>(*r);
  const std::string at = "/14x14_k11_B" + std::to_string(B) + "_d" + std::to_string(d) + "_H" + std::to_string(H);
  const auto in = [=](const std::vector<float>& t, index_t c) {
    return aft::tensor_view<const float, 4>{t.data(), {B, side, side, c}};
  };
  const auto out = [=](std::vector<float>& t, index_t c) {
    return aft::tensor_view<float, 4>{t.data(), {B, side, side, c}};
  };
  const aft::tensor_view<const float, 3> filter{r->data(), {H, taps, taps}};
  const aft::tensor_view<float, 3> dfilter{dr->data(), {H, taps, taps}};
  const aft::options kept{.lse = out(x->lse, H), .average = out(x->average, d)};
  add("conv" + at, [=](const benchmark::State& state) {
    (void)r;
    aft::conv(executor(state), in(x->q, d), in(x->k, H), in(x->v, d), filter, out(x->y, d));
  });
  add(
      "conv_backward" + at,
      [=](const benchmark::State& state) {
        (void)dr;
        aft::conv_backward(executor(state), in(x->q, d), in(x->k, H), in(x->v, d), filter, in(x->dy, d), out(x->dq, d),
                           out(x->dk, H), out(x->dv, d), dfilter, kept);
      },
      [=] { aft::conv(aft::cpu{}, in(x->q, d), in(x->k, H), in(x->v, d), filter, out(x->y, d), kept); });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  add_sequence({8, 1024, 512});
  add_sequence({32, 197, 384});
  add_grid(64, 384, 384);
  add_grid(64, 384, 16);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
