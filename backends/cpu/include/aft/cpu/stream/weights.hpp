// SPDX-License-Identifier: Apache-2.0
/// @file stream/weights.hpp  The biases of one row of one head for the kept
/// positions that it sees, and e^w of them.
#pragma once

#include <algorithm>

#include "../math/exp.hpp"
#include "../runtime/workspace.hpp"
#include "../tensor/strided.hpp"
#include "slot.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Kept positions [first, last) as a row sees them, and whether what left the
/// window counts too, with bias 0.
template <class C>
struct row_weights {
  index_t first = 0, last = 0;
  bool with_fold = false;
  const C* biases = nullptr;  ///< w; -inf: hidden
  const C* scaled = nullptr;  ///< e^w 2^-shift, below 0: hidden
  C shift = C(0);
  bool usable = false;  ///< the scaled ones are; else all lanes are summed from the biases
  bool hides = false;   ///< some are hidden
};

/// Reads them into buffers of one thread.
template <class C>
class weight_rows {
 public:
  static constexpr index_t chunk = 64;
  /// Elements of the buffers for rows of up to `reach` positions, and of one row's biases or e^w.
  static index_t room(const problem& p, index_t reach) { return 2 * row_room(reach) + p.bias.rank + chunk; }
  static index_t row_room(index_t reach) { return round_up(reach, lanes<C>) + lanes<C>; }
  weight_rows(const problem& p, C* buffer, index_t reach)
      : p_(p), raw_(buffer), scaled_(raw_ + row_room(reach)), factors_(scaled_ + row_room(reach)) {}

  /// The next row's biases and e^w go there.
  void write_to(C* raw, C* scaled) {
    raw_ = raw;
    scaled_ = scaled;
  }

  /// Of the row at `position` of batch element b.
  AFT_COMPILE_ONCE row_weights<C> row(index_t b, index_t h, index_t position, index_t first, index_t last,
                                      bool with_fold) {
    const C hidden = -std::numeric_limits<C>::infinity();
    const index_t n = last - first;
    index_t inside = last;
    if (p_.win.bounded && p_.win.after < 0) inside = max_of(first, position + p_.win.after + 1);
    if (inside > first) read(b, h, position, first, inside - first);
    for (index_t s = inside; s < last; ++s) raw_[s - first] = p_.excluded ? hidden : C(0);
    const index_t padded = round_up(n, lanes<C>);
    for (index_t i = n; i < padded; ++i) raw_[i] = hidden;

    row_weights<C> w{first, last, with_fold, raw_, scaled_, C(0), false, false};
    vec<C> most(with_fold ? C(0) : hidden), numbers(C(0));
    for (index_t i = 0; i < padded; i += lanes<C>) {
      const vec<C> x = load(raw_ + i);
      most = max_ignoring_nan<C>(most, x);
      // NaN where any is.
      numbers = xsimd::select(x == x, numbers, x);
    }
    C top = largest_lane<C>(most);
    if (top == hidden) top = C(0);
    C seen[lanes<C>];
    store(seen, numbers);
    bool usable = top <= -exp_constants<C>::lowest && top >= exp_constants<C>::lowest;
    for (index_t l = 0; l < lanes<C>; ++l) usable = usable && seen[l] == seen[l];
    w.usable = usable;
    if (!usable) return w;
    const vec<C> shift = exponent_of<C>(vec<C>(top));
    C shifts[lanes<C>];
    store(shifts, shift);
    w.shift = shifts[0];
    const vec<C> none(hidden), minus(C(-1));
    for (index_t i = n / lanes<C> * lanes<C>; i < n; ++i) w.hides = w.hides || raw_[i] == hidden;
    for (index_t i = 0; i + lanes<C> <= n; i += lanes<C>) w.hides = w.hides || xsimd::any(load(raw_ + i) == none);
    for (index_t i = 0; i < padded; i += lanes<C>) {
      const vec<C> x = load(raw_ + i);
      store(scaled_ + i, xsimd::select(x == none, minus, exp_scaled<C>(x, shift)));
    }
    return w;
  }

 private:
  /// n biases inside the window, from key `first` on.
  void read(index_t b, index_t h, index_t position, index_t first, index_t n) {
    const bias_ref& bias = p_.bias;
    const matrix& w = bias.w;
    const index_t row = (bias.batch > 1 ? b : 0) * w.sb + h * w.sh + position * w.sr;
    switch (bias.kind) {
      case bias_kind::generated:
        bias.rows->generate(bias.rows->f, bias.batch > 1 ? b : 0, h, position, first, raw_, n);
        break;
      case bias_kind::none:
      case bias_kind::sparse: std::fill_n(raw_, n, C(0)); break;
      case bias_kind::dense:
        read_strided<C>(w.type, w.data + (row + first * w.sc) * size_of(w.type), w.sc, n, raw_);
        break;
      case bias_kind::banded: {
        const index_t at = row + (first - position + p_.win.before) * w.sc;
        read_strided<C>(w.type, w.data + at * size_of(w.type), w.sc, n, raw_);
        break;
      }
      case bias_kind::factorized: multiply(h, position, first, n); break;
      case bias_kind::filter: {
        const index_t at = h * bias.r_sh + (first - position + p_.left[2]) * bias.r_sj[2];
        read_strided<C>(bias.r_type, bias.r + at * size_of(bias.r_type), bias.r_sj[2], n, raw_);
        break;
      }
    }
  }

  /// sum_n u[t,n] v[s,n], one chain a pair in the order of n.
  void multiply(index_t h, index_t position, index_t first, index_t n) {
    const matrix &u = p_.bias.u, &v = p_.bias.v;
    const index_t rank = p_.bias.rank;
    read_strided<C>(u.type, u.data + (h * u.sh + position * u.sr) * size_of(u.type), u.sc, rank, factors_);
    C* const column = factors_ + rank;
    for (index_t at = 0; at < n; at += chunk) {
      const index_t count = min_of(chunk, n - at);
      C sums[chunk] = {};
      for (index_t i = 0; i < rank; ++i) {
        const index_t from = h * v.sh + (first + at) * v.sr + i * v.sc;
        read_strided<C>(v.type, v.data + from * size_of(v.type), v.sr, count, column);
        const vec<C> factor(factors_[i]);
        for (index_t j = 0; j < count; j += lanes<C>)
          store(sums + j, mul_add(factor, load(column + j), load(sums + j)));
      }
      std::copy_n(sums, count, raw_ + at);
    }
  }

  const problem& p_;
  C* raw_;
  C* scaled_;
  C* factors_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
