// SPDX-License-Identifier: Apache-2.0
/// @file exchange/far_sums.hpp  What stands for keys that all rows of a rank see with bias 0: their exp_sum, and what
/// their gradients follow from.
#pragma once

#include "../cut/part.hpp"
#include "kernels.hpp"
#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

inline double* behind(double* at, index_t n) {
  return at == nullptr ? nullptr : at + n;
}

/// x a + y b of two weights whose sum is 1, no farther out than x and y: rounding must not take averages of values near
/// the end of the range past it.
inline double between(double x, double a, double y, double b) {
  const double z = x * a + y * b;
  const double low = x < y ? x : y, high = x < y ? y : x;
  return z < low ? low : (z > high ? high : z);
}

/// e^(x - y). Of keys of ordinary size the difference is taken apart where it would be rounded: at 40 that is 16 units
/// in the last place of the result.
inline double exp_apart(double x, double y) {
  constexpr double range = 4000;
  if (!(std::fabs(x) <= range && std::fabs(y) <= range)) return std::exp(x - y);
  const double whole_x = std::floor(x), whole_y = std::floor(y);
  return std::exp(whole_x - whole_y) * (std::exp(x - whole_x) / std::exp(y - whole_y));
}

/// What sums are counted in, e^max, and how many of it another unit is.
struct far_unit {
  double max, times;
};

/// Arrays of an exp_sum for every batch element: max and den (B, hk), and the averages num / den (B, d), which no den
/// takes out of the range. In double, as messages carry it: sums of parts are joined in it whatever the data's type,
/// and there are few of them.
struct far_sum {
  double* max;
  double* den;
  double* average;
  index_t keys, channels;  ///< B hk and B d

  static index_t size(const problem& p) { return p.B * (2 * p.hk + p.d); }
  /// At memory for size() numbers; null where a call has none.
  far_sum(double* at, const problem& p)
      : max{at},
        den(behind(at, p.B * p.hk)),
        average(behind(at, 2 * p.B * p.hk)),
        keys(p.B * p.hk),
        channels(p.B * p.d) {}

  void clear() const {
    for (index_t i = 0; i < keys; ++i) {
      max[i] = -std::numeric_limits<double>::infinity();
      den[i] = 0;
    }
    for (index_t i = 0; i < channels; ++i) average[i] = 0;
  }

  /// The unit of key i, lowered where values are near the end of double, so that slope and offset, which are in it too,
  /// have room for the products of the two. A whole number then, since with others digits would be lost; beside larger
  /// keys all of it would.
  far_unit unit(index_t i) const {
    constexpr double large = 0x1p960, range = 4000, room = 40;
    const index_t group = channels / keys;
    bool some = false;
    for (index_t c = i * group; c < (i + 1) * group; ++c) some = some || std::fabs(average[c]) > large;
    if (!some || !(std::fabs(max[i]) <= range)) return {max[i], 1};
    const double whole = std::floor(max[i]);
    return {whole - room, std::exp(max[i] - whole) * std::exp(room)};
  }
  void make_room() const {
    for (index_t i = 0; i < keys; ++i) {
      const far_unit lower = unit(i);
      max[i] = lower.max;
      den[i] *= lower.times;
    }
  }

  /// As a problem has it.
  far_keys in_kernels(far_kind kind) const { return {kind, max, den, average, nullptr, nullptr}; }

  /// The sum over the keys of both, as merge() of math/exp_sum.hpp: NaN stays, and a sum over nothing changes nothing.
  void merge(const far_sum& other) const {
    const index_t group = keys > 0 ? channels / keys : 0;
    for (index_t i = 0; i < keys; ++i) {
      if (other.den[i] == 0) continue;
      if (den[i] == 0) {
        max[i] = other.max[i];
        den[i] = other.den[i];
        for (index_t c = i * group; c < (i + 1) * group; ++c) average[c] = other.average[c];
        continue;
      }
      // Of NaN neither is larger, and then the difference is NaN.
      const double joint = max[i] < other.max[i] ? other.max[i] : max[i];
      const double own = den[i] * exp_apart(max[i], joint), others = other.den[i] * exp_apart(other.max[i], joint);
      max[i] = joint + 0 * other.max[i];
      den[i] = own + others;
      for (index_t c = i * group; c < (i + 1) * group; ++c)
        average[c] = between(average[c], own / den[i], other.average[c], others / den[i]);
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

  /// Adds what other rows give. The unit is the smaller max: keys that both have as far ones are below either. A max of
  /// -inf says that all far keys are hidden, and then so are these.
  void add(const far_gradient& other) const {
    const index_t group = keys > 0 ? channels / keys : 0;
    constexpr double inf = std::numeric_limits<double>::infinity();
    for (index_t i = 0; i < keys; ++i) {
      if (other.max[i] == -inf) continue;
      const double joint = max[i] == -inf || other.max[i] < max[i] ? other.max[i] : max[i];
      const double own_unit = max[i] == -inf ? 0 : exp_apart(joint, max[i]);
      const double other_unit = exp_apart(joint, other.max[i]);
      max[i] = joint + 0 * other.max[i];
      for (index_t c = i * group; c < (i + 1) * group; ++c) {
        slope[c] = slope[c] * own_unit + other.slope[c] * other_unit;
        offset[c] = offset[c] * own_unit + other.offset[c] * other_unit;
      }
    }
  }
};

/// The sums of a rank's own keys, and their gradients from those of rows elsewhere. aft::cpu has kernels for both.
///
/// On a device and of grids: a call of aft::simple with one row over some of the keys, less the largest of them. Then
/// the sum's logarithm is small, and as exact in the arithmetic type as the sum, so that the operator's own kernels
/// give the sums, relative to the maximum, and no exponential of a key is taken here.
template <class C>
class own_keys {
 public:
  /// Keys that one call takes at most. Copies of them stay in the caches, and the logarithm below 5.6.
  static constexpr index_t chunk = 256;

  own_keys(const part& x, bool backward) : x_(&x), p_(&x.local) {
    index_t n = 0;
    for (const positions& r : x.regions()) n = max_of(n, min_of(r.count() * x.inner, chunk));
    if (!x.sums_own_keys()) n = 0;
    const problem& p = *p_;
    one_ = {x.memory, n > 0 || x.pieces.has_edges() ? far_sum::size(p) : 0};
    if (x.sums_in_kernels()) return;
    const index_t B = p.B, one = n > 0 ? 1 : 0;
    k_ = {x.kernel_memory, B * n * p.hk};
    v_ = {x.kernel_memory, B * n * p.d};
    y_ = {x.kernel_memory, one * B * p.d};
    lse_ = {x.kernel_memory, one * B * p.hk};
    max_ = {x.memory, one * B * p.hk};
    if (!backward) return;
    dy_ = {x.kernel_memory, one * B * max_of(p.d, p.hk)};
    off_ = {x.memory, one * B * p.hk};
    dk_ = {x.kernel_memory, B * n * p.hk};
    dv_ = {x.kernel_memory, B * n * p.d};
    weights_ = {x.kernel_memory, B * n * p.hk};
  }

  /// Adds the sum over some keys, of tensors that begin with position `first`. Where x.sums_in_kernels().
  void fold(const positions& region, index_t first, const field& k, const field& v, const kernels& run,
            const far_sum& to) const {
    const far_sum one(one_.data(), *p_);
    problem p = *p_;
    p.k = k;
    p.v = v;
    place_region(region, first, p);
    p.afar = one.in_kernels(far_kind::sum);
    run.sum_forward(p);
    to.merge(one);
  }
  /// Adds the sum over a region to `to`.
  void fold(const positions& region, const kernels& run, const far_sum& to) const {
    const far_sum one(one_.data(), *p_);
    const index_t group = p_->hk > 0 ? p_->d / p_->hk : 0;
    if (x_->sums_in_kernels()) return fold(region, x_->keys().first, p_->k, p_->v, run, to);
    for_each_chunk(region, [&](index_t s0, index_t n) {
      stage(s0, n);
      find_largest(n);
      subtract_largest(n);
      run.sum_forward(problem_of(n));
      for (index_t i = 0; i < one.keys; ++i) {
        one.max[i] = static_cast<double>(max_[i]);
        const bool none = max_[i] == -std::numeric_limits<C>::infinity();
        one.den[i] = none ? 0 : std::exp(static_cast<double>(lse_[i]));
        for (index_t c = i * group; c < (i + 1) * group; ++c) one.average[c] = none ? 0 : static_cast<double>(y_[c]);
      }
      to.merge(one);
    });
  }

  /// What rows that see some keys as far ones give to their gradients; all tensors begin with position `first`.
  /// `averages`, best those of the keys, are a centre, on which the result depends by rounding alone. `added`: to what
  /// dk and dv hold. Where x.sums_in_kernels().
  void spread(const positions& region, index_t first, const field& k, const field& v, const kernels& run,
              const far_gradient& g, double* averages, bool added, const field& dk, const field& dv) const {
    backward_problem p = x_->local;
    p.k = k;
    p.v = v;
    p.dk = dk;
    p.dv = dv;
    const index_t skipped = place_region(region, first, p);
    for (field* f : {&p.dk, &p.dv})
      if (f->set) f->data += skipped * f->sx[2] * size_of(f->type);
    p.afar = {far_kind::spread, g.max, nullptr, averages, g.slope, g.offset, added};
    run.sum_backward(p);
  }

  /// The same of a region of own keys elsewhere: take(s0, n, dk, dv) gets those of keys s0 to s0 + n of the
  /// whole, (B, n, channels), by chunks.
  template <class Take>
  void find_gradients(const positions& region, const kernels& run, const far_gradient& g, const Take& take) const {
    if (g.keys == 0) return;  // and no memory for what follows
    const problem& p = *p_;
    const index_t group = p.d / p.hk;
    for_each_chunk(region, [&](index_t s0, index_t n) {
      stage(s0, n);
      find_largest(n);
      // A sum that has seen NaN or +inf says so to all its keys.
      for (index_t i = 0; i < g.keys; ++i) max_[i] = g.max[i] == g.max[i] ? max_[i] : static_cast<C>(g.max[i]);
      subtract_largest(n);
      run.sum_forward(problem_of(n));
      // With the largest of these keys as their max the call's weights are e^(k - max) / Z, so that with dy = Z slope
      // it gives dv, and of dk all but that its average is not offset / slope: the sum over channels of what that makes
      // is another e^(k - max) times.
      for (index_t i = 0; i < g.keys; ++i) {
        const double Z = std::exp(static_cast<double>(lse_[i])),
                     unit = exp_apart(static_cast<double>(max_[i]), g.max[i]);
        double off = 0;
        for (index_t c = i * group; c < (i + 1) * group; ++c) {
          dy_[c] = Z == 0 ? C(0) : static_cast<C>(Z * (unit * g.slope[c]));
          if (Z != 0) off += unit * (g.slope[c] * static_cast<double>(y_[c]) - g.offset[c]);
        }
        off_[i] = static_cast<C>(off);
      }
      backward_problem b;
      static_cast<problem&>(b) = problem_of(n);
      b.y = b.lse = field{};
      b.dy = contiguous(dy_.data(), dtype_of<C>, {1, 1, 1}, 1, p.d);
      b.dk = contiguous(dk_.data(), dtype_of<C>, {1, 1, n}, n, p.hk);
      b.dv = contiguous(dv_.data(), dtype_of<C>, {1, 1, n}, n, p.d);
      run.sum_backward(b);
      // e^(k - max) itself, as the gradient of values that are no one's.
      for (index_t i = 0; i < g.keys; ++i) dy_[i] = static_cast<C>(std::exp(static_cast<double>(lse_[i])));
      std::fill_n(v_.data(), p.hk, C(0));
      b.d = p.hk;
      b.v = contiguous(v_.data(), dtype_of<C>, {1, 1, 1}, 0, p.hk);
      b.v.sx = {0, 0, 0};
      b.dk = field{};
      b.dy = contiguous(dy_.data(), dtype_of<C>, {1, 1, 1}, 1, p.hk);
      b.dv = contiguous(weights_.data(), dtype_of<C>, {1, 1, n}, n, p.hk);
      run.sum_backward(b);
      for (index_t i = 0; i < p.B; ++i)
        for (index_t s = 0; s < n; ++s) {
          const index_t at = (i * n + s) * p.hk;
          const C* const off = off_.data() + i * p.hk;
          // A hidden key gets 0, also where what comes from the rows is NaN.
          for (index_t c = 0; c < p.hk; ++c)
            dk_[at + c] += k_[at + c] == -std::numeric_limits<C>::infinity() ? C(0) : weights_[at + c] * off[c];
        }
      take(s0, n, dk_.data(), dv_.data());
    });
  }

 private:
  /// Makes p a call on the keys of a region, without rows and bias. Returns how many own keys come before.
  template <class Problem>
  index_t place_region(const positions& region, index_t first, Problem& p) const {
    const index_t skipped = region.first - first;
    for (field* f : {&p.k, &p.v}) f->data += skipped * f->sx[2] * size_of(f->type);
    p.Tq = 0;
    p.Tk = region.count();
    p.grid = {1, 1, p.Tk};
    p.bias = bias_ref{};
    p.win = band{};
    p.causal = p.excluded = false;
    p.first_query = 0;
    p.query_lengths = length_list{};
    p.lengths.less = region.first;
    if (p.mask != nullptr) p.mask += region.first * p.mask_ss;
    p.q = p.y = p.lse = p.average = field{};
    if constexpr (std::is_same_v<Problem, backward_problem>) {
      p.dy = p.dq = field{};
      p.dbias = bias_ref{};
    }
    return skipped;
  }

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
        C* const k = k_.data() + (b * n + s) * p.hk;
        C* const v = v_.data() + (b * n + s) * p.d;
        if (x_->hides(b, s0 + s)) {
          std::fill_n(k, p.hk, -std::numeric_limits<C>::infinity());
          std::fill_n(v, p.d, C(0));
          continue;
        }
        load_row(row_at(p.k, p.grid, b, s0 + s - first), p.k.type, p.k.sc, p.hk, k);
        load_row(row_at(p.v, p.grid, b, s0 + s - first), p.v.type, p.v.sc, p.d, v);
      }
    }
  }

  /// NaN stays, wherever it comes.
  void find_largest(index_t n) const {
    const problem& p = *p_;
    for (index_t b = 0; b < p.B; ++b) {
      C* const max = max_.data() + b * p.hk;
      std::fill_n(max, p.hk, -std::numeric_limits<C>::infinity());
      for (index_t s = 0; s < n; ++s) {
        const C* const k = k_.data() + (b * n + s) * p.hk;
        for (index_t c = 0; c < p.hk; ++c) {
          const C largest = max[c] == max[c] && !(k[c] <= max[c]) ? k[c] : max[c];
          max[c] = largest;
        }
      }
    }
  }

  /// Hidden keys stay -inf.
  void subtract_largest(index_t n) const {
    const problem& p = *p_;
    for (index_t b = 0; b < p.B; ++b) {
      const C* const max = max_.data() + b * p.hk;
      for (index_t s = 0; s < n; ++s) {
        C* const k = k_.data() + (b * n + s) * p.hk;
        for (index_t c = 0; c < p.hk; ++c) k[c] = k[c] == -std::numeric_limits<C>::infinity() ? k[c] : k[c] - max[c];
      }
    }
  }

  problem problem_of(index_t n) const {
    problem p;
    p.B = p_->B;
    p.Tq = 1;
    p.Tk = n;
    p.d = p_->d;
    p.hk = p_->hk;
    p.gate_fn = gate::none;
    p.narrow_products = false;
    p.k = contiguous(k_.data(), dtype_of<C>, {1, 1, n}, n, p.hk);
    p.v = contiguous(v_.data(), dtype_of<C>, {1, 1, n}, n, p.d);
    p.y = contiguous(y_.data(), dtype_of<C>, {1, 1, 1}, 1, p.d);
    p.lse = contiguous(lse_.data(), dtype_of<C>, {1, 1, 1}, 1, p.hk);
    return p;
  }

  const part* x_;
  const problem* p_;
  buffer<C> k_, v_, y_, lse_, max_, dy_, off_, dk_, dv_, weights_;
  buffer<double> one_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
