// SPDX-License-Identifier: Apache-2.0
/// @file exchange/far_sums.hpp  What stands for keys that all rows of a rank see with bias 0: their exp_sum, and what
/// their gradients follow from.
#pragma once

#include "buffer.hpp"
#include "../cut/part.hpp"
#include "rows.hpp"

#include <cmath>
#include <limits>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

inline double* behind(double* at, index_t n) {
  return at == nullptr ? nullptr : at + n;
}

/// Arrays of an exp_sum for every batch element: max and den (B, hk), num (B, d). In double, as messages carry it: sums
/// of parts are joined in it whatever the data's type, and there are few of them.
struct far_sum {
  double* max;
  double* den;
  double* num;
  index_t keys, channels;  ///< B hk and B d

  static index_t size(const problem& p) { return p.B * (2 * p.hk + p.d); }
  /// At memory for size() numbers; null where a call has none.
  far_sum(double* at, const problem& p)
      : max{at}, den(behind(at, p.B * p.hk)), num(behind(at, 2 * p.B * p.hk)), keys(p.B * p.hk), channels(p.B * p.d) {}

  void clear() const {
    for (index_t i = 0; i < keys; ++i) {
      max[i] = -std::numeric_limits<double>::infinity();
      den[i] = 0;
    }
    for (index_t i = 0; i < channels; ++i) num[i] = 0;
  }

  /// The sum over the keys of both, as merge() of math/exp_sum.hpp: NaN stays, and a sum over nothing changes nothing.
  void merge(const far_sum& other) const {
    const index_t group = keys > 0 ? channels / keys : 0;
    for (index_t i = 0; i < keys; ++i) {
      if (other.den[i] == 0) continue;
      if (den[i] == 0) {
        max[i] = other.max[i];
        den[i] = other.den[i];
        for (index_t c = i * group; c < (i + 1) * group; ++c) num[c] = other.num[c];
        continue;
      }
      // Of NaN neither is larger, and then the difference is NaN.
      const double joint = max[i] < other.max[i] ? other.max[i] : max[i];
      const double own_unit = std::exp(max[i] - joint), other_unit = std::exp(other.max[i] - joint);
      max[i] = joint + 0 * other.max[i];
      den[i] = den[i] * own_unit + other.den[i] * other_unit;
      for (index_t c = i * group; c < (i + 1) * group; ++c) num[c] = num[c] * own_unit + other.num[c] * other_unit;
    }
  }
};

/// What the gradients of far keys follow from, of the rows of one rank: with g = dy gate(q) and a row's sum e^lse,
///     slope = sum_t g e^(max - lse),   offset = sum_t g average e^(max - lse),
/// from which dv[s] = e^(k - max) slope and dk[s] = e^(k - max) sum_c (slope v[s] - offset). max is (B, hk), that of
/// the rank's far keys, the others are (B, d).
struct far_gradient {
  double* max;
  double* slope;
  double* offset;
  index_t keys, channels;

  static index_t size(const problem& p) { return p.B * (p.hk + 2 * p.d); }
  far_gradient(double* at, const problem& p)
      : max{at},
        slope(behind(at, p.B * p.hk)),
        offset(behind(at, p.B * (p.hk + p.d))),
        keys(p.B * p.hk),
        channels(p.B * p.d) {}

  void clear() const {
    for (index_t i = 0; i < keys; ++i) max[i] = -std::numeric_limits<double>::infinity();
    for (index_t i = 0; i < channels; ++i) slope[i] = offset[i] = 0;
  }

  /// Adds another rank's. The unit is the smaller max: keys that both have as far ones are below either. A max of -inf
  /// says that all far keys are hidden, and then so are these.
  void add(const far_gradient& other) const {
    const index_t group = keys > 0 ? channels / keys : 0;
    constexpr double inf = std::numeric_limits<double>::infinity();
    for (index_t i = 0; i < keys; ++i) {
      if (other.max[i] == -inf) continue;
      const double joint = max[i] == -inf || other.max[i] < max[i] ? other.max[i] : max[i];
      const double own_unit = max[i] == -inf ? 0 : std::exp(joint - max[i]);
      const double other_unit = std::exp(joint - other.max[i]);
      max[i] = joint + 0 * other.max[i];
      for (index_t c = i * group; c < (i + 1) * group; ++c) {
        slope[c] = slope[c] * own_unit + other.slope[c] * other_unit;
        offset[c] = offset[c] * own_unit + other.offset[c] * other_unit;
      }
    }
  }
};

/// The functions of a backend that a cut call needs, of one operator and of aft::simple.
struct kernels {
  void (*forward)(const problem& p, const cpu& exec);
  void (*backward)(const backward_problem& p, const cpu& exec);
  void (*sum_forward)(const problem& p, const cpu& exec);
  void (*sum_backward)(const backward_problem& p, const cpu& exec);
};

/// A call of aft::simple with one row over some of a rank's own keys and one more key, the stand-in, whose key is the
/// largest of them. Channels come in pairs: a value, and what probes the weight of the stand-in. So the operator's own
/// kernels give the sums of the keys relative to their maximum, as exact as they are, and no exponential is taken here.
template <class C>
class own_keys {
 public:
  /// Keys that one call takes at most, so that copies of them stay small.
  static constexpr index_t chunk = 1024;

  own_keys(const part& x, bool backward) : x_(&x), p_(&x.local) {
    index_t most = 0;
    for (const positions& r : x.where.regions(x.rank)) most = max_of(most, min_of(r.count() * x.inner, chunk));
    if (!x.where.sends_any(x.rank)) most = -1;
    const problem& p = *p_;
    const index_t B = p.B, n = most + 1;
    k_ = {x.memory, B * n * p.hk};
    v_ = {x.memory, B * n * 2 * p.d};
    y_ = {x.memory, n > 0 ? B * 2 * p.d : 0};
    one_ = {x.memory, n > 0 ? far_sum::size(p) : 0};
    if (!backward) return;
    dy_ = {x.memory, n > 0 ? B * 2 * p.d : 0};
    dk_ = {x.memory, B * n * p.hk};
    dv_ = {x.memory, B * n * 2 * p.d};
  }

  /// Adds the sum over a region to `to`.
  void fold(const positions& region, const kernels& run, const cpu& exec, const far_sum& to) const {
    const far_sum one(one_.data(), *p_);
    for_each_chunk(region, [&](index_t s0, index_t n) {
      stage(s0, n);
      set_largest(n, one);
      set_stand_in(n, one.max);
      run_forward(n, run, exec);
      const index_t group = p_->hk > 0 ? p_->d / p_->hk : 0;
      for (index_t i = 0; i < one.channels; ++i) {
        // The stand-in weighs P = 1 / (den + 1), and the average is num P.
        const double P = static_cast<double>(y_[2 * i + 1]);
        const bool none = one.max[i / group] == -std::numeric_limits<double>::infinity();
        one.den[i / group] = none ? 0 : (1 - P) / P;
        one.num[i] = none ? 0 : static_cast<double>(y_[2 * i]) / P;
      }
      to.merge(one);
    });
  }

  /// Adds what rows elsewhere give to the gradients of a region, (B, keys, channels) from the rank's first key on.
  void add_gradients(const positions& region, const kernels& run, const cpu& exec, const far_gradient& g, double* dk,
                     double* dv) const {
    const problem& p = *p_;
    const index_t own = x_->keys().count() * x_->inner, first = x_->keys().first * x_->inner;
    for_each_chunk(region, [&](index_t s0, index_t n) {
      stage(s0, n);
      set_stand_in(n, g.max);
      run_forward(n, run, exec);
      // dv = a dy with a = e^(k - max) P. The second channel of a pair has average -1 and value 0, so that it adds a
      // times its dy to dk: what the first one's average is off from offset / slope.
      for (index_t i = 0; i < g.channels; ++i) {
        const double A = static_cast<double>(y_[2 * i]), P = static_cast<double>(y_[2 * i + 1]);
        const bool none = !(P != 0);
        dy_[2 * i] = none ? C(0) : static_cast<C>(g.slope[i] / P);
        dy_[2 * i + 1] = none ? C(0) : static_cast<C>((g.slope[i] * A - g.offset[i]) / P);
        v_[(i / p.d * (n + 1) + n) * 2 * p.d + 2 * (i % p.d) + 1] = none ? C(0) : static_cast<C>(-1 / P);
      }
      backward_problem b;
      static_cast<problem&>(b) = problem_of(n);
      b.y = field{};
      b.dy = contiguous(dy_.data(), dtype_of<C>, {1, 1, 1}, 1, 2 * p.d);
      b.dk = contiguous(dk_.data(), dtype_of<C>, {1, 1, n + 1}, n + 1, p.hk);
      b.dv = contiguous(dv_.data(), dtype_of<C>, {1, 1, n + 1}, n + 1, 2 * p.d);
      run.sum_backward(b, exec);
      for (index_t i = 0; i < p.B; ++i) {
        for (index_t s = 0; s < n; ++s) {
          const index_t to = i * own + s0 - first + s, from = i * (n + 1) + s;
          for (index_t c = 0; c < p.hk; ++c) dk[to * p.hk + c] += static_cast<double>(dk_[from * p.hk + c]);
          for (index_t c = 0; c < p.d; ++c) dv[to * p.d + c] += static_cast<double>(dv_[(from * p.d + c) * 2]);
        }
      }
    });
  }

 private:
  template <class F>
  void for_each_chunk(const positions& region, const F& f) const {
    const index_t last = region.last * x_->inner;
    for (index_t s = region.first * x_->inner; s < last; s += chunk) f(s, min_of(chunk, last - s));
  }

  /// Keys s0 to s0 + n of the whole; hidden ones are -inf, so that what they hold does not matter.
  void stage(index_t s0, index_t n) const {
    const problem& p = *p_;
    const index_t first = x_->keys().first * x_->inner;
    for (index_t b = 0; b < p.B; ++b) {
      for (index_t s = 0; s < n; ++s) {
        C* const k = k_.data() + (b * (n + 1) + s) * p.hk;
        C* const v = v_.data() + (b * (n + 1) + s) * 2 * p.d;
        const bool hidden = x_->hides(b, s0 + s);
        for (index_t c = 0; c < 2 * p.d; ++c) v[c] = C(0);
        if (hidden) {
          for (index_t c = 0; c < p.hk; ++c) k[c] = -std::numeric_limits<C>::infinity();
          continue;
        }
        load_row(row_at(p.k, p.grid, b, s0 + s - first), p.k.type, p.k.sc, p.hk, k);
        load_row(row_at(p.v, p.grid, b, s0 + s - first), p.v.type, p.v.sc, p.d, v, 2);
      }
    }
  }

  void set_largest(index_t n, const far_sum& one) const {
    const problem& p = *p_;
    for (index_t b = 0; b < p.B; ++b) {
      double* const max = one.max + b * p.hk;
      for (index_t c = 0; c < p.hk; ++c) max[c] = -std::numeric_limits<double>::infinity();
      for (index_t s = 0; s < n; ++s) {
        const C* const k = k_.data() + (b * (n + 1) + s) * p.hk;
        for (index_t c = 0; c < p.hk; ++c) {
          const auto x = static_cast<double>(k[c]);
          max[c] = !(x <= max[c]) && max[c] == max[c] ? x : max[c];
        }
      }
    }
  }

  /// Its value is 0, and 1 in the channel that tells its weight.
  void set_stand_in(index_t n, const double* max) const {
    const problem& p = *p_;
    for (index_t b = 0; b < p.B; ++b) {
      const index_t at = b * (n + 1) + n;
      for (index_t c = 0; c < p.hk; ++c) {
        k_[at * p.hk + c] = static_cast<C>(max[b * p.hk + c]);
      }
      for (index_t c = 0; c < p.d; ++c) {
        v_[(at * p.d + c) * 2] = C(0);
        v_[(at * p.d + c) * 2 + 1] = C(1);
      }
    }
  }

  void run_forward(index_t n, const kernels& run, const cpu& exec) const { run.sum_forward(problem_of(n), exec); }

  problem problem_of(index_t n) const {
    problem p;
    p.B = p_->B;
    p.Tq = 1;
    p.Tk = n + 1;
    p.d = 2 * p_->d;
    p.hk = p_->hk;
    p.gate_fn = gate::none;
    p.narrow_products = false;
    p.k = contiguous(k_.data(), dtype_of<C>, {1, 1, n + 1}, n + 1, p.hk);
    p.v = contiguous(v_.data(), dtype_of<C>, {1, 1, n + 1}, n + 1, p.d);
    p.y = contiguous(y_.data(), dtype_of<C>, {1, 1, 1}, 1, p.d);
    return p;
  }

  const part* x_;
  const problem* p_;
  buffer<C> k_, v_, y_, dy_, dk_, dv_;
  buffer<double> one_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
