// SPDX-License-Identifier: Apache-2.0
/// @file average.hpp  The loops that all operators share: AFT Eq. 2 for any w(b,h,t,s), forward and backward.
#pragma once

#include <aft/math/exp_sum.hpp>

#include <cmath>
#include <limits>

#include "gate.hpp"
#include "pairs.hpp"
#include "results.hpp"

namespace aft::reference {

/// q, k, v of a call; q gives the number of queries even where the gate does not read it. hk key channels; value
/// channel c uses key channel c / (d/hk).
template <class Real>
struct tensors {
  sequence<Real> q, k, v;
  index_t B() const { return v.B; }
  index_t Tq() const { return q.T; }
  index_t Tk() const { return v.T; }
  index_t d() const { return v.channels; }
  index_t key_channel(index_t c) const { return c / (v.channels / k.channels); }
};

template <class Real>
struct row_pair {
  index_t s;
  Real w;
  bool inside;
};

/// The pairs of one row (b,t) that are seen and not hidden by their bias, which all channels of a head share.
template <class Real>
struct row_pairs {
  index_t h = -1;  ///< the head that they are of
  std::vector<row_pair<Real>> all;
};

template <class Real>
void read_pairs(const tensors<Real>& x, const pairs<Real>& p, index_t b, index_t h, index_t t, row_pairs<Real>& seen) {
  seen.h = h;
  seen.all.clear();
  for (index_t s = 0; s < x.Tk(); ++s) {
    if (!p.visible(b, t, s)) continue;
    const bool inside = p.inside(t, s);
    const Real w = inside ? p.w(b, h, t, s) : Real{0};
    if (w != -std::numeric_limits<Real>::infinity()) seen.all.push_back({s, w, inside});
  }
}

/// A key that a row sees, with x_s = k[b,s,c] + w[t,s].
template <class Real>
struct row_term {
  index_t s;
  bool inside;
  Real e;     ///< exp(x_s - max)
  Real lost;  ///< what rounding k + w to Real took away
};

/// The terms of one row (b,t,c) that are seen.
template <class Real>
struct row {
  std::vector<row_term<Real>> terms;
  exp_sum<Real> sum{};  ///< of all of them; its den is the sum of e
  Real largest = 0;     ///< of |v|
};

/// What rounding took from k + w: Knuth's two-sum, exact for finite numbers. Where k is 1e38 and w is 1 the weights of
/// two such keys still differ by w, and an oracle has to know; in float and double the loop stays the obvious one.
template <class Real>
Real lost(Real k, Real w) {
  if constexpr (std::numeric_limits<Real>::digits <= std::numeric_limits<double>::digits) return 0;
  const Real x = k + w;
  const Real w_part = x - k;
  const Real error = (k - (x - w_part)) + (w - w_part);
  return std::isfinite(error) ? error : Real{0};
}

/// Fills `r` for the row (b,t,c). The joint maximum of k + w over exactly the keys that are seen is known before any
/// exponential is taken, so that nothing is rescaled: merging term by term would round once more for each key.
template <class Real>
void look(const tensors<Real>& x, const row_pairs<Real>& seen, index_t b, index_t c, row<Real>& r) {
  const index_t kc = x.key_channel(c);
  exp_sum<Real> sum = empty_exp_sum<Real>();
  Real max_lost = 0, largest = 0;
  r.terms.clear();
  for (const row_pair<Real>& pair : seen.all) {
    const Real k = x.k(b, pair.s, kc);
    if (k == -std::numeric_limits<Real>::infinity()) continue;
    const row_term<Real> term{pair.s, pair.inside, k + pair.w, lost(k, pair.w)};
    if (term.e > sum.max || (term.e == sum.max && term.lost > max_lost)) {
      sum.max = term.e;
      max_lost = term.lost;
    }
    r.terms.push_back(term);
  }
  for (row_term<Real>& term : r.terms) {
    const Real e = std::exp((term.e - sum.max) + (term.lost - max_lost));
    const Real v = x.v(b, term.s, c);
    term.e = e;
    sum.num += e * v;
    sum.den += e;
    largest = (std::max)(largest, (std::abs)(v));
  }
  r.sum = sum;
  r.largest = largest;
}

/// y[b,t,c] = gate(q[b,t,c]) sum_s exp(k+w) v / sum_s exp(k+w), AFT Eq. 2.
template <class Real>
forward_result<Real> forward(const tensors<Real>& x, const pairs<Real>& p, gate g) {
  forward_result<Real> out;
  row_pairs<Real> seen;
  row<Real> r;
  for (index_t b = 0; b < x.B(); ++b)
    for (index_t t = 0; t < x.Tq(); ++t)
      for (index_t c = 0; c < x.d(); ++c) {
        const index_t h = c / (x.d() / p.H);
        if (c == 0 || h != seen.h) read_pairs(x, p, b, h, t, seen);
        look(x, seen, b, c, r);
        const Real average = average_of(r.sum);
        out.average.push_back(average);
        out.largest.push_back(r.largest);
        out.lse.push_back(lse_of(r.sum));
        const bool gated = g != gate::none && !p.padding(b, t);
        out.y.push_back(gated ? gate_value(g, x.q(b, t, c)) * average : average);
      }
  return out;
}

/// With a = exp(k+w) / den, o the average and g = dy gate(q):
///   dv[s] = sum_t a g          dk[s] = sum_t a g (v[s] - o[t])      dw[t,s] = a g (v[s] - o[t])
///   dq = dy gate'(q) o
/// dk is also summed over the value channels of a key channel, dw over the channels of a head. `dw` and `dw_terms`
/// receive the pair weights' gradient; the operators fold it into the shape of their bias.
template <class Real>
backward_result<Real> backward(const tensors<Real>& x, const pairs<Real>& p, gate gate_fn, const sequence<Real>& dy,
                               pair_gradient<Real>& dw, pair_gradient<Real>& dw_terms) {
  backward_result<Real> out;
  gradients<Real>& terms = out.terms;
  for (auto* grads : {static_cast<gradients<Real>*>(&out), &terms}) {
    grads->dk.resize(x.k.values.size());
    grads->dv.resize(x.v.values.size());
  }
  row_pairs<Real> seen;
  row<Real> r;
  for (index_t b = 0; b < x.B(); ++b)
    for (index_t t = 0; t < x.Tq(); ++t)
      for (index_t c = 0; c < x.d(); ++c) {
        const index_t h = c / (x.d() / p.H);
        if (c == 0 || h != seen.h) read_pairs(x, p, b, h, t, seen);
        look(x, seen, b, c, r);
        const Real o = average_of(r.sum);
        // o is only as good as an average is promised to be, to units of the largest |v| that the row sees.
        const Real o_terms = r.largest;
        const bool gated = gate_fn != gate::none;
        const Real g = gated ? dy(b, t, c) * gate_value(gate_fn, x.q(b, t, c)) : dy(b, t, c);
        // An empty row has no gradient even where dy or q is NaN: its output does not depend on anything.
        const bool used = gated && !r.terms.empty();
        out.lse.push_back(lse_of(r.sum));
        out.dq.push_back(used ? dy(b, t, c) * gate_slope(gate_fn, x.q(b, t, c)) * o : Real{0});
        terms.dq.push_back(used ? (std::abs)(dy(b, t, c)) * o_terms : Real{0});
        if (!r.terms.empty()) {
          // Of a row that hands out no number there is nothing to be near to, nor does it excuse the others.
          const auto raise = [](Real& most, Real size) {
            if (std::isfinite(size)) most = (std::max)(most, size);
          };
          raise(out.row_dv, (std::abs)(g));
          raise(out.row_dx, 2 * (std::abs)(g)*o_terms);
        }
        for (const row_term<Real>& term : r.terms) {
          const index_t s = term.s;
          const Real a = term.e / r.sum.den;
          const Real v = x.v(b, s, c);
          const Real dx = a * g * (v - o);
          const Real dx_terms = a * (std::abs)(g) * ((std::abs)(v) + o_terms);
          const auto at_v = static_cast<std::size_t>((b * x.Tk() + s) * x.d() + c);
          const auto at_k = static_cast<std::size_t>((b * x.Tk() + s) * x.k.channels + x.key_channel(c));
          out.dv[at_v] += a * g;
          terms.dv[at_v] += a * (std::abs)(g);
          out.dk[at_k] += dx;
          terms.dk[at_k] += dx_terms;
          if (!term.inside) continue;
          dw(b, h, t, s) += dx;
          dw_terms(b, h, t, s) += dx_terms;
        }
      }
  return out;
}

}  // namespace aft::reference
