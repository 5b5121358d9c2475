// SPDX-License-Identifier: Apache-2.0
/// @file scan/emit.hpp  The sums of the scan, and what becomes of the row that stands at a key.
#pragma once

#include "../math/gates.hpp"
#include "panel.hpp"
#include "reference.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// num = sum exp(k) v and den = sum exp(k) of every lane, in the lane's reference and, where its base is 0, in the unit
/// of the first key, see first_key. num is also divided by 2^value_shift(peak), peak being the largest finite |v|, or
/// some |v| where none of them is extreme.
template <class C>
struct fold_lanes {
  static constexpr index_t arrays = 9;
  C* base = nullptr;
  C* exponent = nullptr;
  C* peak = nullptr;
  C* num = nullptr;
  C* den = nullptr;
  /// Of a chunk the sums of its runs before this one, see scan_tuning::run; of merged ones what rounding took from
  /// them.
  C* num_more = nullptr;
  C* den_more = nullptr;
  C* key_unit = nullptr;
  C* per_key_unit = nullptr;  ///< its inverse

  fold_lanes() = default;
  fold_lanes(C* at, index_t width) {
    cut_arrays(at, width, {&base, &exponent, &peak, &num, &den, &num_more, &den_more, &key_unit, &per_key_unit});
  }

  reference<C> in(index_t l) const { return {load(base + l), load(exponent + l)}; }

  void clear(index_t width) const {
    const vec<C> zero(C(0)), one(C(1)), empty(empty_exponent<C>);
    for (index_t l = 0; l < width; l += lanes<C>) {
      for (C* const array : {base, peak, num, den, num_more, den_more}) store(array + l, zero);
      store(exponent + l, empty);
      set_unit(l, one, one);
    }
  }
  /// Sums as they are in units of 1.
  void leave_units(index_t width) const {
    const vec<C> one(C(1));
    for (index_t l = 0; l < width; l += lanes<C>) {
      for (C* const sum : {num, den, num_more, den_more}) store(sum + l, load(sum + l) * load(key_unit + l));
      set_unit(l, one, one);
    }
  }
  void set_unit(index_t l, const vec<C>& unit, const vec<C>& per_unit) const {
    store(key_unit + l, unit);
    store(per_key_unit + l, per_unit);
  }
};

/// How a chunk's own sums and those before it make a row: N = num num_unit + num_before, D likewise, and the average is
/// unit N / D. Keeping the chunk in its own reference makes its sum the same whether or not the past is known yet. Its
/// rows are in that reference too, num_unit and den_unit being 1, unless the past's lies far above it or either is
/// special; and in the chunk's key_unit, or, as long as no key of the chunk has come, in that of the past: no bit may
/// tell which key comes next.
template <class C>
struct fold_view {
  static constexpr index_t arrays = 12;
  C* limit = nullptr;  ///< keys whose exp_steps are up to it, with ordinary values, need no change of reference
  C* num_unit = nullptr;
  C* den_unit = nullptr;
  C* num_before = nullptr;
  C* den_before = nullptr;
  C* num_past = nullptr;  ///< the same without the chunk's runs before this one
  C* den_past = nullptr;
  C* base = nullptr;
  C* exponent = nullptr;
  C* unit = nullptr;
  C* key_unit = nullptr;
  /// The same for nearest_keys, once a value has come that is neither 0 nor extreme, and if den_unit is 1.
  C* ordinary_size = nullptr;

  fold_view() = default;
  fold_view(C* at, index_t width) {
    cut_arrays(at, width,
               {&limit, &num_unit, &den_unit, &num_before, &den_before, &num_past, &den_past, &base, &exponent, &unit,
                &key_unit, &ordinary_size});
  }
  /// Rows also see `num` and `den` of the chunk.
  void begin_after(index_t l, const vec<C>& num, const vec<C>& den) const {
    store(num_before + l, mul_add(num, load(num_unit + l), load(num_past + l)));
    store(den_before + l, mul_add(den, load(den_unit + l), load(den_past + l)));
  }
};

/// What becomes of a row: nothing, y alone, or whatever scan_rows asks for.
enum class emission { nothing, gated, any };

/// Where rows go; null for what is not wanted. e^-lse = inverse * 2^power * e^base keeps the digits that a rounded lse
/// would lose; inverse 0 marks a row that sees no key.
template <class C, class T = C>
struct scan_rows {
  panel<C> average{}, lse{}, inverse{}, power{}, base{};
  panel<C> num{}, den{};    ///< whose sigmoid_quotient with q is y
  panel<T> q{}, y{};        ///< y = sigmoid(q) average, formed while num and den are in registers
  bool streamed = false;    ///< y is written by streaming stores
  bool prefetched = false;  ///< lines of y are asked for
};

/// What a fold goes through: keys, values, and where their rows go; T is the type in which they, q and y are stored.
template <class C, class T = C>
struct fold_inputs {
  panel<T> keys, values;
  scan_rows<C, T> out;
};

/// A vector of a row of y. Of narrow T its NaNs began as such numbers, or are the processor's own.
template <class C, class T>
AFT_INLINE void put_row(T* p, const vec<C>& v, bool streamed) {
  if constexpr (std::is_same_v<T, C>) {
    put(p, v, streamed);
  } else {
    store_numbers_as<C>(p, v);
  }
}

/// Both sums in their common reference; `shift` is that of the common peak.
template <class C>
struct fold_join {
  joined<C> references;
  vec<C> peak, shift, num_first, num_second;
};

template <class C>
inline fold_join<C> join_folds(const fold_lanes<C>& a, const fold_lanes<C>& b, index_t l) {
  fold_join<C> out;
  out.references = join<C>(a.in(l), b.in(l));
  const vec<C> pa = load(a.peak + l);
  const vec<C> pb = load(b.peak + l);
  out.peak = xsimd::select(pa > pb, pa, pb);
  if (xsimd::all(ordinary_peak<C>(pa) & ordinary_peak<C>(pb))) {
    out.shift = vec<C>(C(0));
    out.num_first = out.references.first;
    out.num_second = out.references.second;
    return out;
  }
  out.shift = value_shift<C>(out.peak);
  out.num_first = times_pow2<C>(out.references.first, value_shift<C>(pa) - out.shift);
  out.num_second = times_pow2<C>(out.references.second, value_shift<C>(pb) - out.shift);
  return out;
}

/// sum scale + x, where the next addition takes up what this one rounds away: of thousands of chunks with equal sums
/// all would be rounded in one direction.
template <class C>
inline void add_exactly(C* sum, C* rest, const vec<C>& scale, const vec<C>& x) {
  const vec<C> a = load(sum) * scale, total = a + x, added = total - a;
  const vec<C> lost = (a - (total - added)) + (x - added);
  const vec<C> left = mul_add(load(rest), scale, lost), whole = total + left;
  const auto ordinary = (xsimd::abs)(whole) <= vec<C>(exp_constants<C>::largest);
  store(sum, xsimd::select(ordinary, whole, total));
  store(rest, xsimd::select(ordinary, left - (whole - total), vec<C>(C(0))));
}

/// before += chunk.
template <class C>
inline void merge_folds(const fold_lanes<C>& before, const fold_lanes<C>& chunk, index_t width) {
  for (index_t l = 0; l < width; l += lanes<C>) {
    const fold_join<C> j = join_folds<C>(before, chunk, l);
    const auto first = load(before.exponent + l) == vec<C>(empty_exponent<C>);
    const vec<C> own = load(chunk.key_unit + l), per_own = load(chunk.per_key_unit + l);
    const vec<C> unit = xsimd::select(first, own, load(before.key_unit + l));
    const vec<C> per_unit = xsimd::select(first, per_own, load(before.per_key_unit + l));
    const vec<C> ratio = xsimd::select(own == unit, vec<C>(C(1)), own * per_unit);
    const vec<C> num = load(chunk.num_more + l) + load(chunk.num + l);
    const vec<C> den = load(chunk.den_more + l) + load(chunk.den + l);
    const vec<C> more_num = num * (j.num_second * ratio), more_den = den * (j.references.second * ratio);
    if (xsimd::all(first)) {  // the same bits, soon there
      store(before.num + l, more_num);
      store(before.den + l, more_den);
    } else {
      add_exactly<C>(before.num + l, before.num_more + l, j.num_first, more_num);
      add_exactly<C>(before.den + l, before.den_more + l, j.references.first, more_den);
    }
    before.set_unit(l, unit, per_unit);
    store(before.base + l, j.references.common.base);
    store(before.exponent + l, j.references.common.exponent);
    store(before.peak + l, j.peak);
  }
}

/// A past reference up to so many powers of two above that of a chunk is brought down to it: sums of 2^40 values of up
/// to 2^40 stay in range, and what follows of den, see shared_exp_minus. Exponents of two first keys of one
/// distribution hardly differ by more: keys 27 apart.
inline constexpr int highest_past = 40;

/// The limit of keys that are near, with `unit` as in fold_view::den_unit.
template <class C>
inline vec<C> near_limit(const vec<C>& exponent, const vec<C>& unit) {
  return xsimd::select(unit == vec<C>(C(1)), nearest_keys<C>(exponent), vec<C>(-std::numeric_limits<C>::infinity()));
}

/// Brings the view up to date after a lane's reference or value shift changed.
template <class C, bool Emit>
inline void update_view(const fold_lanes<C>& chunk, const fold_lanes<C>& before, const fold_view<C>& view, index_t l,
                        bool lowers) {
  const vec<C> zero(C(0));
  const reference<C> f = chunk.in(l);
  const vec<C> peak = load(chunk.peak + l);
  auto special = differs<C>(f.base, zero) | differs<C>(value_shift<C>(peak), zero);
  vec<C> unit(C(1));
  if constexpr (Emit) {
    const fold_join<C> j = join_folds<C>(before, chunk, l);
    special = special | differs<C>(j.shift, zero) | differs<C>(j.references.common.base, zero);
    const auto past_alone = f.exponent == vec<C>(empty_exponent<C>);
    const vec<C> past_unit = load(before.key_unit + l), one(C(1));
    const vec<C> ratio = xsimd::select(past_alone | (past_unit == load(chunk.key_unit + l)), one,
                                       past_unit * load(chunk.per_key_unit + l));
    const vec<C> above = j.references.common.exponent - f.exponent;
    const vec<C> most(lowers ? C(highest_past) : C(0));
    const vec<C> down = xsimd::select(special | (above > most), zero, above);
    unit = times_pow2<C>(j.references.second, down);
    store(view.num_unit + l, times_pow2<C>(j.num_second, down));
    store(view.den_unit + l, unit);
    store(view.num_past + l, load(before.num + l) * (times_pow2<C>(j.num_first, down) * ratio));
    store(view.den_past + l, load(before.den + l) * (times_pow2<C>(j.references.first, down) * ratio));
    view.begin_after(l, load(chunk.num_more + l), load(chunk.den_more + l));
    store(view.key_unit + l, xsimd::select(past_alone, past_unit, load(chunk.key_unit + l)));
    store(view.base + l, j.references.common.base);
    store(view.exponent + l, j.references.common.exponent - down);
    store(view.unit + l, pow2<C>(j.shift));
  }
  const vec<C> none(-std::numeric_limits<C>::infinity());
  store(view.limit + l, xsimd::select(special, none, highest_step<C>(f.exponent)));
  store(view.ordinary_size + l, xsimd::select(special | (peak == zero), none, near_limit<C>(f.exponent, unit)));
}

/// The sums and results that a kernel works on.
template <class C, class T = C>
struct fold_job {
  fold_lanes<C> chunk, before;
  fold_view<C> view;
  scan_rows<C, T> out;
  index_t row = 0;        ///< how many of the chunk's have passed
  bool uncached = false;  ///< the arrays are in memory, not in a cache
  bool units = false;     ///< some key_unit of the chunk is not 1
  /// The past is brought down to the chunk's reference. Not where lanes of one vector may be of several batch elements:
  /// rows without a key of their own then pass through the fold, alone they do not, and sums of subnormal numbers would
  /// differ by their unit.
  bool lowers = false;
};

/// How the rows of a lane are made whose values have no scale: num and den then have the same unit.
template <class C>
struct fold_past {
  vec<C> unit, num_before, den_before;
  fold_past(const fold_view<C>& view, index_t l)
      : unit(load(view.den_unit + l)), num_before(load(view.num_before + l)), den_before(load(view.den_before + l)) {}
};

/// e^-lse of row r, column i of the segment, where it is wanted.
template <class C, class T>
inline void emit_weight(const scan_rows<C, T>& out, const fold_view<C>& view, index_t l, index_t i, index_t r,
                        const vec<C>& den) {
  if (out.inverse.data == nullptr) return;
  const vec<C> zero(C(0)), inverse = vec<C>(C(1)) / (den * load(view.key_unit + l));
  store(out.inverse.row(r) + i, xsimd::select(den == zero, zero, inverse));
  store(out.power.row(r) + i, -load(view.exponent + l));
  store(out.base.row(r) + i, -load(view.base + l));
}

/// Row r of the results, column i of the segment, of lanes that have all seen a key and whose values have no scale.
template <class C, class T>
inline void emit_ordinary(const scan_rows<C, T>& out, const fold_view<C>& view, const fold_past<C>& past, index_t l,
                          index_t i, index_t r, const vec<C>& num, const vec<C>& den) {
  const vec<C> n = mul_add(num, past.unit, past.num_before);
  const vec<C> d = mul_add(den, past.unit, past.den_before);
  if (out.y.data != nullptr)
    put_row<C>(out.y.row(r) + i, sigmoid_quotient<C>(n, d, load_as<C>(out.q.row(r) + i)), out.streamed);
  if (out.average.data != nullptr) store(out.average.row(r) + i, n / d);
  if (out.lse.data != nullptr)
    store(out.lse.row(r) + i,
          load(view.base + l) + log_shifted<C>(d * load(view.key_unit + l), load(view.exponent + l)));
  emit_weight<C>(out, view, l, i, r, d);
}

/// The same for any lanes, with the same bits.
template <class C, class T>
inline void emit_any(const fold_job<C, T>& job, index_t l, index_t i, index_t r, const vec<C>& num, const vec<C>& den) {
  const fold_view<C>& view = job.view;
  const vec<C> n = mul_add(num, load(view.num_unit + l), load(view.num_before + l));
  const vec<C> d = mul_add(den, load(view.den_unit + l), load(view.den_before + l));
  const vec<C> zero(C(0));
  const vec<C> one(C(1));
  const auto none = d == zero;
  const vec<C> unit = load(view.unit + l);
  const vec<C> peak = max_ignoring_nan<C>(load(job.chunk.peak + l), load(job.before.peak + l));
  vec<C> o = n / d * unit;
  // An average of finite values is no larger than the largest, but near the end of the range rounding could make it
  // infinite.
  const auto beyond =
      differs<C>(unit, one) & ((xsimd::abs)(o) > peak) & ((xsimd::abs)(n) <= vec<C>(exp_constants<C>::largest));
  o = xsimd::select(beyond, xsimd::select(n < zero, -peak, peak), o);
  o = xsimd::select(none, zero, o);
  const auto scaled = none | differs<C>(unit, one);
  const vec<C> num_of_y = xsimd::select(scaled, o, n);
  const vec<C> den_of_y = xsimd::select(scaled, one, d);
  const scan_rows<C, T>& out = job.out;
  if (out.y.data != nullptr)
    put_row<C>(out.y.row(r) + i, sigmoid_quotient<C>(num_of_y, den_of_y, load_as<C>(out.q.row(r) + i)), out.streamed);
  if (out.num.data != nullptr) {
    store(out.num.row(r) + i, num_of_y);
    store(out.den.row(r) + i, den_of_y);
  }
  if (out.average.data != nullptr) store(out.average.row(r) + i, o);
  if (out.lse.data != nullptr) {
    const vec<C> lse = load(view.base + l) + log_shifted<C>(d * load(view.key_unit + l), load(view.exponent + l));
    store(out.lse.row(r) + i, xsimd::select(none, vec<C>(-std::numeric_limits<C>::infinity()), lse));
  }
  emit_weight<C>(out, view, l, i, r, d);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
