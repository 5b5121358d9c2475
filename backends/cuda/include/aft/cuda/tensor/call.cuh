// SPDX-License-Identifier: Apache-2.0
/// @file tensor/call.cuh  A validated call as kernels take it: one plain struct, passed by value.
#pragma once

#include "storage.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Where w[t,s] comes from, the pairs that are hidden, and the filter's box. `row` and `column` are the pair that
/// w.data points at: not (0, 0) where a part of a factorized bias was expanded into scratch.
struct device_bias {
  bias_kind kind = bias_kind::none;
  index_t heads = 1;
  bool batched = false;
  matrix w{};
  index_t row = 0, column = 0;
  matrix u{}, v{};  ///< factorized, as long as it is not expanded
  index_t rank = 0;
  std::byte* r = nullptr;
  dtype r_type = dtype::other;
  index_t r_sh = 0, r_s0 = 0, r_s1 = 0, r_s2 = 0;
  grid taps{}, left{0, 0, 0};
  bool bounded = false;
  index_t before = 0, after = 0;
};

/// What a row's fold leaves for the backward pass: a[t,s,c] = exp(k + w - 2 (base_hi + base_lo)) 2^-exponent inverse.
/// A float lse of 1000 is known to 6e-5 only, and so would be every gradient. inverse is 0 for a row that sees no
/// key; the bases are 0 unless its logits lie beyond number<C>::range. Each is (B, Tq, channels).
template <class C>
struct row_state {
  C* inverse = nullptr;
  C* exponent = nullptr;
  C* base_hi = nullptr;
  C* base_lo = nullptr;
};

/// `channels` of the state: the key channels, unless one of them serves several heads, whose biases then part its value
/// channels. `from_lse`: a backward call reads the caller's lse in place of a state.
template <class C>
struct device_call {
  index_t B = 0, Tq = 0, Tk = 0, d = 0, hk = 0;
  grid positions{};
  tensor q{}, k{}, v{}, y{}, lse{}, average{};
  tensor dy{}, dq{}, dk{}, dv{};
  device_bias bias{};
  bool causal = false, excluded = false;
  index_t diagonal = 0;                       ///< causal rows see keys up to t + diagonal; 0 where they see all
  index_t reach_before = 0, reach_after = 0;  ///< as `reach` counts them
  gate gate_fn = gate::none;
  const std::byte* mask = nullptr;
  index_t mask_sb = 0, mask_st = 0, mask_ss = 0;
  length_list lengths{}, query_lengths{};
  row_state<C> state{};
  index_t state_channels = 0;
  bool from_lse = false;
  C* g = nullptr;  ///< dy gate(q), (B, Tq, d)
};

inline bool has_pair_mask(const problem& p) {
  return p.mask != nullptr && p.mask_st != 0;
}

template <class C>
AFT_DEVICE bool pair_mask(const device_call<C>& p) {
  return p.mask != nullptr && p.mask_st != 0;
}
template <class C>
AFT_DEVICE bool mask_hides(const device_call<C>& p, index_t b, index_t t, index_t s) {
  return p.mask[b * p.mask_sb + t * p.mask_st + s * p.mask_ss] == std::byte{0};
}

/// length_list::of for device code: the length of batch element b, between 0 and `most`.
AFT_DEVICE index_t length_of(const length_list& list, index_t b, index_t most) {
  if (list.data == nullptr) return most;
  const std::byte* const at = list.data + b * list.step;
  const index_t n = list.wide ? index_t{*reinterpret_cast<const std::int64_t*>(at)}
                              : index_t{*reinterpret_cast<const std::int32_t*>(at)};
  return n < list.less ? 0 : (n - list.less > most ? most : n - list.less);
}

/// Whether row t of batch element b is padding: it counts as a row that sees no key, whatever its memory holds.
template <class C>
AFT_DEVICE bool is_padding(const device_call<C>& p, index_t b, index_t t) {
  return p.query_lengths.data != nullptr && t >= length_of(p.query_lengths, b, p.Tq);
}

/// Whether key s of batch element b is hidden from every query, k apart.
template <class C>
AFT_DEVICE bool key_hidden(const device_call<C>& p, index_t b, index_t s) {
  if (p.lengths.data != nullptr && s >= length_of(p.lengths, b, p.Tk)) return true;
  return p.mask != nullptr && p.mask_st == 0 && mask_hides(p, b, 0, s);
}

struct span {
  index_t lo, hi;
};

AFT_HOST_DEVICE index_t clamp_to(index_t x, index_t most) {
  return x < 0 ? 0 : (x > most ? most : x);
}

/// All keys that queries [t0, t1) may see.
template <class C>
AFT_DEVICE span keys_of(const device_call<C>& p, index_t t0, index_t t1) {
  index_t lo = p.excluded ? t0 - p.reach_before : 0;
  index_t hi = p.excluded ? t1 + p.reach_after : p.Tk;
  if (p.causal && hi > t1 + p.diagonal) hi = t1 + p.diagonal;
  return {clamp_to(lo, p.Tk), clamp_to(hi, p.Tk)};
}

/// All queries that may see keys [s0, s1).
template <class C>
AFT_DEVICE span queries_of(const device_call<C>& p, index_t s0, index_t s1) {
  index_t lo = p.excluded ? s0 - p.reach_after : 0;
  index_t hi = p.excluded ? s1 + p.reach_before : p.Tq;
  if (p.causal && lo < s0 - p.diagonal) lo = s0 - p.diagonal;
  return {clamp_to(lo, p.Tq), clamp_to(hi, p.Tq)};
}

/// k[b,s,c]; -inf for a key that is hidden or does not exist, whose memory is not read. c counts value channels.
template <class C>
AFT_DEVICE C load_key(const device_call<C>& p, index_t b, index_t s, index_t c) {
  if (s >= p.Tk || key_hidden(p, b, s)) return -number<C>::infinity;
  return load<C>(p.k, p.positions, b, s, c / (p.d / p.hk));
}

}  // namespace aft::inline AFT_ISA::cuda_impl
