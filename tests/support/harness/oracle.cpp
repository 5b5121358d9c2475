// SPDX-License-Identifier: Apache-2.0
// What a call has to give, in long double, and how far the naive loop is off; for every storage type.
//
// A file of its own, since the tests wait for this more than for the library where sanitizers watch it. They need not:
// the reference's loops are what reference_test.cpp calls, and no kernel runs here.
#include "call/typed_call.hpp"
#include "typed_functions.hpp"

#if defined(AFT_TEST_WITHOUT_ORACLE)

// Threads alone are looked at there, and what evaluates numbers takes a minute to compile.
namespace aft::test {
const typed_oracle oracle_f32{}, oracle_f64{}, oracle_f16{}, oracle_bf16{};
}  // namespace aft::test

#else

namespace aft::test {

namespace {

template <class Real>
std::vector<long double> widened(const std::vector<Real>& x) {
  return {x.begin(), x.end()};
}

/// The type of the exact evaluation. Where long double is made of software, as the 113 bits of ARM, RISC-V and s390x
/// are, an exponential takes a hundred times as long; double has 29 bits more than float, which is what data that is
/// computed in float is held to.
template <class T>
using exact_t = std::conditional_t<(std::numeric_limits<long double>::digits > 64) && sizeof(compute_t<T>) == 4, double,
                                   long double>;

/// One value per key channel out of one per value channel.
std::vector<long double> per_key_channel(const std::vector<long double>& lse, const setup& s) {
  std::vector<long double> result;
  for (std::size_t i = 0; i < lse.size(); i += static_cast<std::size_t>(s.d / s.hk)) result.push_back(lse[i]);
  return result;
}

long double largest_finite(const std::vector<long double>& x) {
  long double largest = 0;
  for (long double e : x) {
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
  }
  return largest;
}

/// What rounding brings into the weights of a factorized bias before anything is weighed: each w = u v^T is rounded
/// once at least, half a unit of the largest, which is a relative error of that size in every exp(w), and moves an
/// average by at most twice that much of max|v|. The error of the naive loop shows it only where two large weights
/// happen to meet.
template <class T>
long double bias_error(typed_call<T>& x) {
  const setup& s = x.s;
  if (x.u.extents().empty()) return 0;
  const auto u = x.u.read();
  const auto f = x.f.read();
  const index_t u_heads = static_cast<index_t>(u.size()) / std::max<index_t>(1, s.Tq * s.n);
  const index_t f_heads = static_cast<index_t>(f.size()) / std::max<index_t>(1, s.Tk * s.n);
  long double largest = 0;
  for (index_t h = 0; h < std::max(u_heads, f_heads); ++h) {
    for (index_t t = 0; t < s.Tq; ++t) {
      for (index_t k = 0; k < s.Tk; ++k) {
        long double w = 0;
        for (index_t i = 0; i < s.n; ++i) {
          w += static_cast<long double>(u[static_cast<std::size_t>(((h % u_heads) * s.Tq + t) * s.n + i)]) *
               static_cast<long double>(f[static_cast<std::size_t>(((h % f_heads) * s.Tk + k) * s.n + i)]);
        }
        if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
      }
    }
  }
  return 2 * std::expm1(ulp(arithmetic_of(dtype_of<T>), largest) / 2);
}

template <class T>
oracle_result evaluate_forward(const setup& s, const numbers& n) {
  typed_call<T> x(s, n);
  const auto exact = x.template reference_forward<exact_t<T>>();
  const auto naive = x.template reference_forward<compute_t<T>>();
  oracle_result out;
  out.value.y = widened(exact.y);
  out.value.average = widened(exact.average);
  out.value.lse = per_key_channel(widened(exact.lse), x.s);
  out.naive.y = widened(naive.y);
  out.naive.average = widened(naive.average);
  out.naive.lse = per_key_channel(widened(naive.lse), x.s);
  out.scale.average = widened(exact.largest);
  const auto q = x.q.read();
  for (std::size_t i = 0; i < exact.y.size(); ++i) {
    const long double gate = s.gate_fn == gate::none ? 1 : reference::gate_value(s.gate_fn, q[i]);
    out.scale.y.push_back(out.scale.average[i] * std::max(1.0L, std::abs(gate)));
  }
  out.scale.lse.assign(out.value.lse.size(), std::max(1.0L, largest_finite(out.value.lse)));
  out.given_error = bias_error(x);
  return out;
}

template <class Real>
void set_gradients(results& out, const reference::gradients<Real>& g) {
  out.dq = widened(g.dq);
  out.dk = widened(g.dk);
  out.dv = widened(g.dv);
  out.dw = widened(g.dw);
  out.du = widened(g.du);
  out.df = widened(g.dv_factor);
  out.dr = widened(g.dr);
}

/// The largest finite |dy factor(q)|; without a gate q may be anything, and `ungated` is the factor.
template <class T, class Factor>
long double most_of_dy(typed_call<T>& x, long double ungated, const Factor& factor) {
  const auto q = x.q.read();
  const auto dy = x.dy.read();
  long double most = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const long double by = x.s.gate_fn == gate::none ? ungated : factor(x.s.gate_fn, q[i]);
    const long double size = std::abs(static_cast<long double>(dy[i]) * by);
    if (std::isfinite(size)) most = std::max(most, size);
  }
  return most;
}

template <class T>
oracle_result evaluate_backward(const setup& s, const numbers& n) {
  typed_call<T> x(s, n);
  const auto exact = x.template reference_backward<exact_t<T>>();
  oracle_result out;
  set_gradients(out.value, exact);
  set_gradients(out.naive, x.template reference_backward<compute_t<T>>());
  set_gradients(out.scale, exact.terms);
  out.terms = out.scale;
  const auto most = [](strided<T>& factor) { return factor.extents().empty() ? 0 : largest_finite(factor.read()); };
  const setup& c = x.s;
  const index_t group = c.d / std::max<index_t>(1, c.heads());
  const index_t shared = c.hk == 0 ? 0 : c.d / c.hk;
  // What an average that is off by 1 would change: terms a g (v - o) of at most as much as an element of dv adds up.
  const long double pair = largest_finite(out.terms.dv);
  const long double g = most_of_dy(x, 1, reference::gate_value<long double>);
  const long double slope = most_of_dy(x, 0, reference::gate_slope<long double>);
  const long double with_v = g * 2 * most(x.v);
  struct {
    std::vector<long double> results::*tensor;
    long double row;      ///< the most that a row hands out
    index_t count;        ///< the most terms of an element
    long double average;  ///< the most that its terms multiply an average by, one by one
    long double weight;   ///< the same of a weight a[t,s,c]
  } const bounds[] = {{&results::dq, 0, 1, slope, 0},
                      {&results::dk, exact.row_dx, c.Tq * shared, pair, with_v},
                      {&results::dv, exact.row_dv, c.Tq, 0, g},
                      {&results::dw, exact.row_dx, c.B * group, pair, with_v},
                      {&results::du, exact.row_dx * most(x.f), c.B * c.d * c.Tk, pair * most(x.f), with_v * most(x.f)},
                      {&results::df, exact.row_dx * most(x.u), c.B * c.d * c.Tq, pair * most(x.u), with_v * most(x.u)},
                      {&results::dr, exact.row_dx, c.B * group * c.Tq, pair, with_v}};
  // Weights below the least normal number may be dropped (docs/adr/0002-proof-check.md).
  const long double dropped = std::ldexp(1.0L, precision_of(arithmetic_of(dtype_of<T>)).min_exponent);
  // Below the normal numbers of its type a given average is off by half of the smallest one, whatever its own size.
  const long double off = s.save ? ulp(s.narrow_average ? dtype_of<T> : arithmetic_of(dtype_of<T>), 0) / 2 : 0;
  for (const auto& bound : bounds) {
    auto& scale = out.scale.*bound.tensor;
    scale.assign(scale.size(), std::max<long double>(largest_finite(scale), bound.row));
    (out.count.*bound.tensor).assign(1, static_cast<long double>(bound.count));
    (out.given_absolute.*bound.tensor)
        .assign(1, static_cast<long double>(bound.count) * (off * bound.average + dropped * bound.weight));
  }
  out.given_error = bias_error(x);
  if (!s.save) return out;
  // a = exp(k + w - lse): half a unit of a stored lse is a factor of its exponential in every term. An average brings
  // half a unit of its own type into v - o.
  const long double largest = largest_finite(widened(exact.lse));
  if (s.has_lse()) out.given_error += std::expm1(ulp(arithmetic_of(dtype_of<T>), largest) / 2);
  out.given_error += ulp(s.narrow_average ? dtype_of<T> : arithmetic_of(dtype_of<T>), 1) / 2;
  return out;
}

template <class T>
constexpr typed_oracle oracle_of() {
  return {evaluate_forward<T>, evaluate_backward<T>};
}

}  // namespace

const typed_oracle oracle_f32 = oracle_of<float>();
const typed_oracle oracle_f64 = oracle_of<double>();
const typed_oracle oracle_f16 = oracle_of<half>();
const typed_oracle oracle_bf16 = oracle_of<bfloat16>();

}  // namespace aft::test

#endif
