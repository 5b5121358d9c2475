// SPDX-License-Identifier: Apache-2.0
/// @file pairs.hpp  The position bias of every operator as one function w(b,h,t,s), and its adjoint.
#pragma once

#include <aft/math/bias.hpp>
#include <aft/math/generated_bias.hpp>
#include <aft/math/window.hpp>

#include <algorithm>

#include "arguments.hpp"

namespace aft::reference {

/// What distinguishes the operators: which pairs are seen and which weight they have.
template <class Real>
struct pairs {
  index_t H = 1;                                                      ///< channel c uses head c / (d/H)
  visible_function visible;                                           ///< (b,t,s)
  std::function<bool(index_t t, index_t s)> inside;                   ///< elsewhere the bias is 0
  std::function<Real(index_t b, index_t h, index_t t, index_t s)> w;  ///< asked only where visible and inside
  std::function<bool(index_t b, index_t t)> padding;                  ///< rows that give 0 whatever they hold
};

/// What the options say of pairs and rows.
template <class Real>
void set_options(const options& opt, pairs<Real>& p) {
  p.visible = visibility(opt);
  p.padding = [opt](index_t b, index_t t) { return is_padding(opt, b, t); };
}

inline bool everywhere(index_t, index_t) {
  return true;
}

/// Gradient of the pair weights, dw[b,h,t,s], as the backward loop leaves it: 0 where hidden or outside.
template <class Real>
struct pair_gradient {
  index_t B = 0, H = 0, Tq = 0, Tk = 0;
  std::vector<Real> values;

  pair_gradient(index_t B_, index_t H_, index_t Tq_, index_t Tk_)
      : B(B_), H(H_), Tq(Tq_), Tk(Tk_), values(static_cast<std::size_t>(B_ * H_ * Tq_ * Tk_)) {}
  Real& operator()(index_t b, index_t h, index_t t, index_t s) {
    return values[static_cast<std::size_t>(((b * H + h) * Tq + t) * Tk + s)];
  }
  const Real& operator()(index_t b, index_t h, index_t t, index_t s) const {
    return values[static_cast<std::size_t>(((b * H + h) * Tq + t) * Tk + s)];
  }
};

/// The parameters of a bias that a gradient is taken for, row-major in the caller's shape. `second` is the v of a
/// factorized bias and empty otherwise.
template <class Real>
struct bias_gradient {
  std::vector<Real> first, second;
};

// --- dense: w[t,s] is stored (AFT Eq. 2; inside a window Eq. 4) ----------------------------------------------------

template <class Real, class W>
pairs<Real> read_bias(const dense_bias<W>& bias) {
  constexpr std::size_t rank = W::rank();
  pairs<Real> p;
  p.H = rank == 2 ? 1 : bias.w.extent(rank - 3);
  p.inside = everywhere;
  p.w = [w = bias.w](index_t b, index_t h, index_t t, index_t s) {
    if constexpr (rank == 2) return static_cast<Real>(w(t, s));
    if constexpr (rank == 3) return static_cast<Real>(w(h, t, s));
    if constexpr (rank == 4) return static_cast<Real>(w(w.extent(0) == 1 ? 0 : b, h, t, s));
  };
  return p;
}

template <class Real, class W>
bias_gradient<Real> fold_bias(const dense_bias<W>& bias, const pair_gradient<Real>& dw) {
  const bool per_batch = W::rank() == 4 && bias.w.extent(0) != 1;
  bias_gradient<Real> g;
  g.first.resize(static_cast<std::size_t>(bias.w.size()));
  const std::size_t own = per_batch ? dw.values.size() : g.first.size();
  for (std::size_t i = 0; i < dw.values.size(); ++i) g.first[i % own] += dw.values[i];
  return g;
}

// --- generated: a function says w[t,s], of positions
// -------------------------------------------------------------------

/// A function that takes rows of float is asked for those, as for all data but double.
template <class Real, class F>
pairs<Real> read_bias(const generated_bias<F>& bias, index_t first_query) {
  using number = std::conditional_t<std::is_invocable_v<const F&, index_t, index_t, index_t, index_t, std::span<float>>,
                                    float, double>;
  pairs<Real> p;
  p.H = bias.heads;
  p.inside = everywhere;
  p.w = [bias, first_query](index_t b, index_t h, index_t t, index_t s) {
    number w = 0;
    bias.f(bias.batched ? b : 0, h, first_query + t, s, std::span<number>(&w, 1));
    return static_cast<Real>(w);
  };
  return p;
}

/// dw in the shape (H, Tq, Tk), or (B, H, Tq, Tk).
template <class Real, class F>
bias_gradient<Real> fold_bias(const generated_bias<F>& bias, const pair_gradient<Real>& dw) {
  const std::size_t one = static_cast<std::size_t>(dw.H * dw.Tq * dw.Tk);
  bias_gradient<Real> g;
  g.first.resize(bias.batched ? dw.values.size() : one);
  for (std::size_t i = 0; i < dw.values.size(); ++i) g.first[i % g.first.size()] += dw.values[i];
  return g;
}

// --- factorized: w[t,s] = sum_n u[t,n] v[s,n] (AFT Eq. 7, DAFT Eq. 6) ----------------------------------------------

template <class V>
index_t factor_heads(const V& f) {
  return V::rank() == 2 ? 1 : f.extent(0);
}

/// A factor with one head serves all heads of the other.
template <class V>
index_t own_head(const V& f, index_t h) {
  return factor_heads(f) == 1 ? 0 : h;
}

template <class V>
auto factor(const V& f, index_t h, index_t t, index_t n) {
  if constexpr (V::rank() == 2) return f(t, n);
  if constexpr (V::rank() == 3) return f(own_head(f, h), t, n);
}

template <class Real, class U, class V>
pairs<Real> read_bias(const factorized_bias<U, V>& bias) {
  pairs<Real> p;
  p.H = (std::max)(factor_heads(bias.u), factor_heads(bias.v));
  p.inside = everywhere;
  p.w = [u = bias.u, v = bias.v](index_t, index_t h, index_t t, index_t s) {
    Real sum = 0;
    for (index_t n = 0; n < u.extent(U::rank() - 1); ++n) {
      sum += static_cast<Real>(factor(u, h, t, n)) * static_cast<Real>(factor(v, h, s, n));
    }
    return sum;
  };
  return p;
}

/// du = dw v and dv = dw^T u. `term` maps the other factor's value, so that the same loop also adds absolute values.
template <class Real, class U, class V, class Term>
bias_gradient<Real> fold_factors(const factorized_bias<U, V>& bias, const pair_gradient<Real>& dw, Term term) {
  const index_t rank = bias.u.extent(U::rank() - 1);
  bias_gradient<Real> g;
  g.first.resize(static_cast<std::size_t>(bias.u.size()));
  g.second.resize(static_cast<std::size_t>(bias.v.size()));
  for (index_t b = 0; b < dw.B; ++b)
    for (index_t h = 0; h < dw.H; ++h)
      for (index_t t = 0; t < dw.Tq; ++t)
        for (index_t s = 0; s < dw.Tk; ++s) {
          // A hidden pair has gradient 0 exactly, and the factors of a hidden key may hold NaN.
          const Real d = dw(b, h, t, s);
          if (d == Real{0}) continue;
          const index_t hu = own_head(bias.u, h), hv = own_head(bias.v, h);
          for (index_t n = 0; n < rank; ++n) {
            g.first[static_cast<std::size_t>((hu * dw.Tq + t) * rank + n)] +=
                d * term(static_cast<Real>(factor(bias.v, h, s, n)));
            g.second[static_cast<std::size_t>((hv * dw.Tk + s) * rank + n)] +=
                d * term(static_cast<Real>(factor(bias.u, h, t, n)));
          }
        }
  return g;
}

// --- banded: entry j of row t is w[t, first_query + t - before + j] ------------------------------------------------

template <class Real, class W>
pairs<Real> read_bias(const banded_bias<W>& bias, const window& win, index_t first_query) {
  pairs<Real> p;
  p.H = W::rank() == 2 ? 1 : bias.w.extent(0);
  p.w = [w = bias.w, before = win.before - first_query](index_t, index_t h, index_t t, index_t s) {
    const index_t j = s - t + before;
    if constexpr (W::rank() == 2) return static_cast<Real>(w(t, j));
    if constexpr (W::rank() == 3) return static_cast<Real>(w(h, t, j));
  };
  return p;
}

template <class Real, class W>
bias_gradient<Real> fold_bias(const banded_bias<W>& bias, const window& win, index_t first_query,
                              const pair_gradient<Real>& dw) {
  bias_gradient<Real> g;
  g.first.resize(static_cast<std::size_t>(bias.w.size()));
  for (index_t b = 0; b < dw.B; ++b)
    for (index_t h = 0; h < dw.H; ++h)
      for (index_t t = 0; t < dw.Tq; ++t)
        for (index_t j = 0; j < win.width(); ++j) {
          const index_t s = first_query + t - win.before + j;
          if (s < 0 || s >= dw.Tk) continue;
          g.first[static_cast<std::size_t>((h * dw.Tq + t) * win.width() + j)] += dw(b, h, t, s);
        }
  return g;
}

/// A bias of any shape but that of a band.
template <class Real, class Bias>
pairs<Real> read_bias_at(const Bias& bias, index_t first_query) {
  if constexpr (is_generated_bias<Bias>) {
    return read_bias<Real>(bias, first_query);
  } else {
    return read_bias<Real>(bias);
  }
}

}  // namespace aft::reference
