// SPDX-License-Identifier: Apache-2.0
// The caller's floating-point environment: it reaches no result, on no thread, and is as it was after every call.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <cfenv>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <new>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace {

using aft::index_t;

constexpr index_t B = 4, T = 40, d = 18, H = 2;

/// Inputs among which are subnormal numbers and sums that round, and room for all results.
template <class X>
struct tensors {
  using C = aft::compute_t<X>;
  std::vector<X> q, k, v, dy, results;
  std::vector<C> w, r;
  std::size_t used = 0;

  tensors() : q(B * T * d), k(q.size()), v(q.size()), dy(q.size()), results(8 * q.size()), w(T * T), r(H * 5) {
    const auto value = [](std::size_t i) { return static_cast<float>(i * 7919 % 2003) / 1001 - 1; };
    // The smallest values that sums of them are still exact enough for: subnormal in float, and in X's own type.
    const float small = std::is_same_v<X, float> ? 1e-39f : (std::is_same_v<X, double> ? 1e-38f : 3e-7f);
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] = X(value(i));
      k[i] = X(3 * value(i + 11));
      v[i] = X(i % 3 == 0 ? value(i + 5) * small : value(i + 5));
      dy[i] = X(i % 5 == 0 ? value(i + 3) * small : value(i + 3));
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<C>(2 * value(i + 1));
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<C>(value(i + 2));
  }
  aft::tensor_view<const X, 3> in(const std::vector<X>& x) const { return {x.data(), {B, T, d}}; }
  aft::tensor_view<X, 3> out() {
    X* const at = results.data() + used;
    used += static_cast<std::size_t>(B * T * d);
    return {at, {B, T, d}};
  }
  void clear() {
    used = 0;
    for (X& x : results) x = X(7.0f);
  }
};

template <class X>
using call = std::function<void(tensors<X>&, const aft::cpu&)>;

template <class X>
std::vector<call<X>> every_call() {
  using C = aft::compute_t<X>;
  const auto bias = [](tensors<X>& x) { return aft::dense_bias{aft::tensor_view<const C, 2>{x.w.data(), {T, T}}}; };
  const auto filter = [](tensors<X>& x) { return aft::tensor_view<const C, 2>{x.r.data(), {H, 5}}; };
  std::vector<call<X>> all;
  for (bool causal : {false, true}) {
    const aft::options o{.causal = causal};
    all.push_back(
        [=](tensors<X>& x, const aft::cpu& e) { aft::full(e, x.in(x.q), x.in(x.k), x.in(x.v), bias(x), x.out(), o); });
    all.push_back([=](tensors<X>& x, const aft::cpu& e) {
      aft::local(e, x.in(x.q), x.in(x.k), x.in(x.v), bias(x), aft::window{3, 3}, x.out(), o);
    });
    all.push_back(
        [=](tensors<X>& x, const aft::cpu& e) { aft::simple(e, x.in(x.q), x.in(x.k), x.in(x.v), x.out(), o); });
    all.push_back([=](tensors<X>& x, const aft::cpu& e) {
      aft::conv(e, x.in(x.q), x.in(x.k), x.in(x.v), filter(x), x.out(), o);
    });
    all.push_back([=](tensors<X>& x, const aft::cpu& e) {
      const auto dq = x.out(), dk = x.out(), dv = x.out();
      const aft::dense_bias dw{aft::tensor_view<X, 2>{x.out().data(), {T, T}}};
      if constexpr (std::is_same_v<X, C>) {
        aft::full_backward(e, x.in(x.q), x.in(x.k), x.in(x.v), bias(x), x.in(x.dy), dq, dk, dv, dw, o);
        aft::local_backward(e, x.in(x.q), x.in(x.k), x.in(x.v), bias(x), aft::window{3, 3}, x.in(x.dy), aft::no_grad,
                            x.out(), aft::no_grad, dw, o);
      } else {
        aft::full_backward(e, x.in(x.q), x.in(x.k), x.in(x.v), bias(x), x.in(x.dy), dq, dk, dv, aft::no_grad, o);
      }
    });
    all.push_back([=](tensors<X>& x, const aft::cpu& e) {
      aft::simple_backward(e, x.in(x.q), x.in(x.k), x.in(x.v), x.in(x.dy), x.out(), x.out(), x.out(), o);
    });
    all.push_back([=](tensors<X>& x, const aft::cpu& e) {
      aft::conv_backward(e, x.in(x.q), x.in(x.k), x.in(x.v), filter(x), x.in(x.dy), x.out(), x.out(), x.out(),
                         aft::tensor_view<X, 2>{x.out().data(), {H, 5}}, o);
    });
  }
  all.push_back([=](tensors<X>& x, const aft::cpu& e) {
    aft::attention_map(e, aft::tensor_view<const X, 2>{x.k.data(), {9, 2}},
                       aft::factorized_bias{aft::tensor_view<const C, 2>{x.w.data(), {9, 4}},
                                            aft::tensor_view<const C, 2>{x.w.data() + 50, {9, 4}}},
                       aft::tensor_view<X, 3>{x.out().data(), {9, 9, 2}});
  });
  all.push_back([=](tensors<X>& x, const aft::cpu& e) {
    const aft::tensor_view<const X, 2> r{x.k.data(), {3, 7}};
    const aft::tensor_view<const X, 1> gain{x.q.data(), {3}}, shift{x.v.data(), {3}};
    aft::reparameterize(e, r, gain, shift, aft::tensor_view<X, 2>{x.out().data(), {3, 7}});
    aft::reparameterize_backward(e, r, gain, shift, aft::tensor_view<const X, 2>{x.dy.data(), {3, 7}},
                                 aft::tensor_view<X, 2>{x.out().data(), {3, 7}},
                                 aft::tensor_view<X, 1>{x.out().data(), {3}},
                                 aft::tensor_view<X, 1>{x.out().data(), {3}});
  });
  return all;
}

/// What a program may have set. Each is in force between set() and the reading of what is left of it.
struct mode {
  const char* name;
  void (*set)();
};

#if defined(__SSE__)
unsigned control() {
  return _mm_getcsr();
}
#else
unsigned control() {
  return static_cast<unsigned>(std::fegetround());
}
#endif

std::vector<mode> modes() {
  std::vector<mode> all{
      {"upward", [] { std::fesetround(FE_UPWARD); }},
      {"downward", [] { std::fesetround(FE_DOWNWARD); }},
      {"toward zero", [] { std::fesetround(FE_TOWARDZERO); }},
      {"flags of others", [] { std::feraiseexcept(FE_UNDERFLOW | FE_DIVBYZERO); }},
  };
#if defined(__SSE__)
  all.push_back({"flush to zero", [] { _mm_setcsr(_mm_getcsr() | 0x8000u); }});
  all.push_back({"subnormal numbers are zero", [] { _mm_setcsr(_mm_getcsr() | 0x0040u); }});
  all.push_back({"everything traps", [] { _mm_setcsr(_mm_getcsr() & ~0x1f80u); }});
#elif defined(__GLIBC__)
  all.push_back({"everything traps", [] { feenableexcept(FE_ALL_EXCEPT); }});
#endif
  return all;
}

/// Runs `body` under a mode, and says whether that, flags included, was the same after it.
template <class F>
bool stays(const mode& m, const F& body) {
  std::fenv_t mine;
  std::fegetenv(&mine);
  std::fesetenv(FE_DFL_ENV);
  m.set();
  const unsigned before = control();
  body();
  const unsigned after = control();
  const int flags = std::fetestexcept(FE_ALL_EXCEPT);
  std::fesetenv(FE_DFL_ENV);
  m.set();
  const bool same_flags = flags == std::fetestexcept(FE_ALL_EXCEPT);
  std::fesetenv(&mine);
  return before == after && same_flags;
}

/// A resource that has nothing to give.
struct exhausted : std::pmr::memory_resource {
  void* do_allocate(std::size_t, std::size_t) override { throw std::bad_alloc(); }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

TEST_CASE_TEMPLATE("environment: bits of the default one, and the caller's own afterwards", X, float, double, aft::half,
                   aft::bfloat16) {
  tensors<X> x;
  const std::vector<call<X>> calls = every_call<X>();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    x.clear();
    calls[i](x, aft::cpu{1});
    const std::vector<X> expected = x.results;
    for (const mode& m : modes()) {
      for (int threads : {1, 3}) {
        x.clear();
        const bool kept = stays(m, [&] { calls[i](x, aft::cpu{threads}); });
        const bool same = std::memcmp(expected.data(), x.results.data(), expected.size() * sizeof(X)) == 0;
        CHECK_MESSAGE(kept, "call ", i, ", ", m.name, ", threads ", threads);
        CHECK_MESSAGE(same, "call ", i, ", ", m.name, ", threads ", threads);
      }
    }
  }
}

TEST_CASE("environment: a call that throws gives it back") {
  tensors<float> x;
  exhausted none;
  const auto in = x.in(x.q);
  for (const mode& m : modes()) {
    bool refused = false, failed = false;
    CHECK(stays(m, [&] {
      try {
        aft::simple(aft::cpu{2}, in, in, in, aft::tensor_view<float, 3>{x.results.data(), {B, T + 1, d}});
      } catch (const aft::shape_error&) {
        refused = true;
      }
    }));
    CHECK(stays(m, [&] {
      try {
        aft::simple(aft::cpu{.threads = 2, .memory = &none}, in, in, in, x.out());
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }));
    x.clear();
    CHECK((refused && failed));
  }
}

#if defined(_OPENMP) && defined(__SSE__)
// Of each thread, as a runtime may end threads that a smaller team does not need and start others later.
static thread_local unsigned given = 0;

TEST_CASE("environment: the team's threads have their own, which reaches no result and is given back") {
  tensors<float> x;
  const std::vector<call<float>> calls = every_call<float>();
  constexpr int team = 3;
  // Each of them another: flush to zero, upward, both with a flag raised.
  const auto own = [](int thread) {
    return 0x1f80u | (thread % 2 == 0 ? 0x8040u : 0x4000u) | (thread == 2 ? 0x01u : 0u);
  };
  // Threads whose own one is another after `work`.
  const auto changed_by = [&](const auto& work) {
    int changed = 0;
#pragma omp parallel num_threads(team)
    if (omp_get_thread_num() > 0) {
      given = own(omp_get_thread_num());
      _mm_setcsr(given);
    }
    work();
#pragma omp parallel num_threads(team) reduction(+ : changed)
    if (given != 0) {
      changed += _mm_getcsr() != given;
      given = 0;
      _mm_setcsr(0x1f80u);
    }
    return changed;
  };
  // Clang's runtime gives every thread of a team that of the thread which starts it.
  const int by_runtime = changed_by([] {});
  for (std::size_t i = 0; i < calls.size(); ++i) {
    x.clear();
    calls[i](x, aft::cpu{1});
    const std::vector<float> expected = x.results;
    x.clear();
    CHECK_MESSAGE(changed_by([&] { calls[i](x, aft::cpu{team}); }) == by_runtime, "call ", i);
    CHECK_MESSAGE(std::memcmp(expected.data(), x.results.data(), expected.size() * sizeof(float)) == 0, "call ", i);
  }
}
#endif
