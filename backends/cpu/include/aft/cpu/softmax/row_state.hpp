// SPDX-License-Identifier: Apache-2.0
/// @file softmax/row_state.hpp  What a row's fold leaves for the backward pass, without the rounding of a stored lse.
#pragma once

#include <atomic>
#include <new>

#include "../math/exp_weight.hpp"
#include "../math/half_sum.hpp"
#include "../runtime/workspace.hpp"
#include "../tensor/stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The channels whose weights differ: the key channels, unless one of them serves several heads, whose biases then
/// part its value channels.
inline index_t state_channels(const problem& p) {
  return p.hk % p.bias.heads == 0 ? p.hk : p.d;
}

/// For each (b, t, state channel), a[t,s,c] = exp(k + w - 2 (base_hi + base_lo)) * 2^-exponent * inverse. A float lse
/// of 1000 is known to 6e-5 only, and so would be every gradient; these four lose nothing. inverse is 0 for a row
/// that sees no key. base is 0 unless the row's logits lie beyond exp_constants::range; it is halved so that
/// FLT_MAX + FLT_MAX has a place.
struct row_state {
  field inverse{}, exponent{}, base_hi{}, base_lo{};
  std::atomic<bool>* beyond = nullptr;  ///< raised when any base is not 0; the bases are kept only then
  bool set = false;
};

template <class C>
inline field scratch_field(scratch& memory, index_t B, index_t T, index_t channels) {
  field f;
  f.data = reinterpret_cast<std::byte*>(memory.take<C>(B * T * channels));
  f.type = dtype_of<C>;
  f.set = true;
  f.sb = T * channels;
  f.sx = {0, 0, channels};
  f.sc = 1;
  return f;
}

template <class C>
inline row_state scratch_state(scratch& memory, const problem& p) {
  row_state state;
  state.inverse = scratch_field<C>(memory, p.B, p.Tq, state_channels(p));
  state.exponent = scratch_field<C>(memory, p.B, p.Tq, state_channels(p));
  state.beyond = ::new (memory.take<std::atomic<bool>>(1)) std::atomic<bool>(false);
  state.set = true;
  return state;
}

template <class C>
inline void add_state_bases(scratch& memory, const problem& p, row_state& state) {
  state.base_hi = scratch_field<C>(memory, p.B, p.Tq, state_channels(p));
  state.base_lo = scratch_field<C>(memory, p.B, p.Tq, state_channels(p));
}

/// The state of rows whose lse is only known rounded. A row that saw no key has lse -inf.
template <class C>
struct lane_state {
  vec<C> inverse, exponent, base_hi, base_lo;
  AFT_RETURNED_IN_PLACE
};
/// `columns`: their exponents go into times_pow2, and may have a fraction.
template <class C, bool columns = false>
inline lane_state<C> state_from_lse(const vec<C>& lse) {
  const vec<C> zero(C(0));
  const auto empty = lse == vec<C>(-std::numeric_limits<C>::infinity());
  const auto beyond = (xsimd::abs)(lse) > vec<C>(exp_constants<C>::range);
  // exp(-lse) = mantissa 2^i, and the state divides by 2^exponent.
  const vec<C> x = xsimd::select(beyond, zero, -lse);
  const split_exp<C> e = columns ? exp_weight<C>(x) : exp_weight_whole<C>(x);
  return {xsimd::select(empty, zero, e.mantissa), -e.exponent,
          xsimd::select(beyond && !empty, lse * vec<C>(C(0.5)), zero), zero};
}

/// The states of `count` numbers of lse, which stand in `inverse`.
template <class C>
inline void states_from_lse(index_t count, C* inverse, C* exponent, C* base_hi, C* base_lo) {
  for (index_t i = 0; i < count; i += lanes<C>) {
    const lane_state<C> s = state_from_lse<C>(load(inverse + i));
    store(inverse + i, s.inverse);
    store(exponent + i, s.exponent);
    store(base_hi + i, s.base_hi);
    store(base_lo + i, s.base_lo);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
