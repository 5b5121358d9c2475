// SPDX-License-Identifier: Apache-2.0
/// @file problem/problem.hpp  The one struct an operator hands to a backend: tensors as type-erased strided fields.
///
/// Types and ranks are erased here on purpose: a backend is compiled once for float and once for double arithmetic,
/// not once for each combination of storage type, rank and bias, which keeps a user's build in seconds.
#pragma once

#include <array>
#include <cstddef>

#include "../numeric.hpp"
#include "options.hpp"

namespace aft {

/// A tensor (b, x0, x1, x2, c). A sequence has x0 = x1 = 1. Strides in elements. Absent when data is null and
/// `set` is false.
struct field {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  bool set = false;
  index_t sb = 0;
  std::array<index_t, 3> sx{};
  index_t sc = 0;
};

/// A matrix per (b, h): w[t,s], banded w[t,j], u[t,n] or v[s,n].
struct matrix {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  bool set = false;
  index_t sb = 0, sh = 0, sr = 0, sc = 0;
};

/// Where w[t,s] comes from. `none` is 0 everywhere.
enum class bias_kind : std::uint8_t { none, dense, factorized, banded, filter, generated, sparse };

/// The caller's function that a generated bias comes from, or its gradient goes to: a pointer and what to call it by,
/// so that a library of kernels can call what it was not compiled with. Rows are of float, or of double for double
/// data.
struct generated_rows {
  const void* f = nullptr;
  void (*generate)(const void* f, index_t b, index_t h, index_t t, index_t s0, void* row, index_t n) noexcept = nullptr;
  void (*take)(const void* f, index_t part, index_t b, index_t h, index_t t, index_t s0, const void* dw,
               index_t n) noexcept = nullptr;
  index_t parts = 1;  ///< that the rows of a gradient are dealt to
  bool wide = false;  ///< double
};

/// A number of int32 or int64, which may be long or long long to the caller: copied, since a compiler may hold those
/// apart.
[[gnu::always_inline]] inline index_t integer_at(const std::byte* from, bool wide) {
  std::int64_t n = 0;
  std::int32_t narrow = 0;
  if (wide) {
    __builtin_memcpy(&n, from, sizeof n);
  } else {
    __builtin_memcpy(&narrow, from, sizeof narrow);
    n = narrow;
  }
  return n;
}

/// The offsets s - t of a sparse filter, of int32 or int64: taps of `axes` numbers each, for every head. Strides in
/// elements.
struct tap_list {
  const std::byte* data = nullptr;
  bool wide = false;  ///< int64
  index_t count = 0, axes = 1;
  index_t sh = 0, st = 0, sa = 0;
  index_t first_query = 0;  ///< on a sequence query t stands there + t

  [[gnu::always_inline]] index_t offset(index_t h, index_t tap, index_t axis) const {
    return integer_at(data + (h * sh + tap * st + axis * sa) * (wide ? 8 : 4), wide);
  }
};

struct bias_ref {
  bias_kind kind = bias_kind::none;
  index_t heads = 1;  ///< H; channel c uses head c / (d/H)
  index_t batch = 1;  ///< the extent of w's own batch axis: 1, or B
  index_t rank = 0;   ///< n of a factorized bias
  matrix w{};         ///< dense or banded
  matrix u{}, v{};    ///< factorized
  /// Each factor's own head extent: H, or 1 with sh = 0, which as a gradient sums over the heads.
  index_t u_heads = 1, v_heads = 1;
  std::byte* r = nullptr;  ///< filter r(h, j0, j1, j2), or the values of a sparse filter, r(h, 0, 0, tap)
  dtype r_type = dtype::other;
  bool r_set = false;
  index_t r_sh = 0;
  std::array<index_t, 3> r_sj{};
  tap_list taps{};                       ///< sparse
  const generated_rows* rows = nullptr;  ///< generated
  index_t rows_first = 0;                ///< the position of the first query, as its function knows it
  index_t rows_batch = 0;                ///< and the number of a packed call's sequence
  index_t rows_head = 0;                 ///< and the head of a problem of one head
  index_t rows_before = 0;               ///< rows of a gradient that a packed call's sequences before it have
};

/// Pairs outside the window have bias 0 or are excluded. Unbounded: every pair is inside.
struct band {
  bool bounded = false;
  index_t before = 0;
  index_t after = 0;
};

/// A length for every batch element, of int32 or int64; null: none is given.
struct length_list {
  const std::byte* data = nullptr;
  index_t step = 0;   ///< bytes from one to the next
  bool wide = false;  ///< int64
  index_t less = 0;   ///< to be taken off every one

  [[gnu::always_inline]] index_t of(index_t b, index_t most) const {
    if (data == nullptr) return most;
    const index_t n = integer_at(data + b * step, wide);
    return n < less ? 0 : (n - less > most ? most : n - less);
  }
};

/// Where each packed sequence begins, and in the end where the last one ends; int32 or int64 in host memory.
struct offset_list {
  const std::byte* data = nullptr;
  index_t step = 0;   ///< bytes from one to the next
  bool wide = false;  ///< int64

  [[gnu::always_inline]] index_t at(index_t n) const { return integer_at(data + n * step, wide); }
};

/// The sequences of a call whose rows hold several, one behind the other. sequence_of (sequences.hpp) makes a problem
/// of each; what depends on its length is settled there, from what the caller gave.
struct packed_sequences {
  index_t count = 0;
  offset_list queries{}, keys{};
  index_t longest_queries = 0, longest_keys = 0;
  bool causal = false;
  index_t first_query = 0;
  band win{};
  /// Rows and columns that a bias has, at least those of the longest sequence; rows of v are columns.
  index_t bias_rows = 0, bias_columns = 0;
};

/// The slots that a call goes on from.
struct stream_ref {
  std::byte* data = nullptr;
  stream_spec spec{};
  index_t count = 0;
  std::uint64_t digest = 0;        ///< of the spec, as headers hold it
  index_t limit = 0;               ///< on a device: positions that slots and bias have room for
  const std::byte* ids = nullptr;  ///< of int64 or int32; null: slot b is batch element b's
  index_t id_step = 0;             ///< bytes from one to the next
  bool wide = false;               ///< int64

  /// The slot of batch element b, or -1.
  [[gnu::always_inline]] index_t slot(index_t b) const {
    if (ids == nullptr) return b;
    return integer_at(ids + b * id_step, wide);
  }
};

/// What the kernels of aft::cpu do about keys that are not among the call's own, as when a sequence lies on several
/// ranks.
enum class far_kind : std::uint8_t {
  none,
  /// Every row also sees one key, `max`, with bias 0, that counts den times and whose value is `average`. Backward,
  /// what that key's gradients follow from goes to `slope` and `offset`, where those are set.
  rows,
  /// No rows: the sum over the call's keys is written to `max`, `den` and `average`. A forward call of aft::simple.
  sum,
  /// No rows: the gradients of the call's keys follow from `slope` and `offset`. A backward call of aft::simple.
  spread
};

/// The exp_sum of many keys as one: den in units of e^max and the average of their values, so that no number of it is
/// larger than theirs. A sum over no key has den 0. With g = dy gate(q) and a row's sum e^lse,
///     slope = sum_t g e^(max - lse),   offset = sum_t g average(t) e^(max - lse),
/// over rows that see the keys: then dv = e^(k - max) slope and dk = e^(k - max) (slope v - offset). In double, as
/// messages carry them. max and den are (B, hk), the others (B, d).
struct far_keys {
  far_kind kind = far_kind::none;
  double *max = nullptr, *den = nullptr, *average = nullptr;
  double *slope = nullptr, *offset = nullptr;
  bool added = false;  ///< spread: to what dk and dv hold, which then are of the arithmetic type

  bool joins_rows() const { return kind == far_kind::rows; }
  /// Those of the batch elements from b on.
  far_keys from(index_t b, index_t hk, index_t d) const {
    const auto at = [](double* x, index_t n) { return x == nullptr ? nullptr : x + n; };
    return {kind, at(max, b * hk), at(den, b * hk), at(average, b * d), at(slope, b * d), at(offset, b * d), added};
  }
};

/// A validated forward call.
struct problem {
  index_t B = 0, Tq = 0, Tk = 0, d = 0, hk = 0;  ///< hk key channels; value channel c uses c / (d/hk)
  std::array<index_t, 3> grid{1, 1, 1};          ///< of queries and keys alike when conv; else (1, 1, Tq)
  field q{}, k{}, v{}, y{};
  field lse{}, average{};  ///< outputs of a forward call, inputs of a backward call
  bias_ref bias{};
  band win{};                                           ///< local
  std::array<index_t, 3> taps{1, 1, 1}, left{0, 0, 0};  ///< conv: key = query + j - left per axis
  bool causal = false;
  /// Causal rows see keys s <= t + first_query. `win` and `left` count from t, as they were moved by it.
  index_t first_query = 0;
  gate gate_fn = gate::sigmoid;
  bool excluded = false;            ///< pairs outside window or filter are not seen
  bool narrow_products = true;      ///< products of 16-bit data may take operands of its type
  const std::byte* mask = nullptr;  ///< bytes (b, t, s); stride 0 where an extent is 1
  index_t mask_sb = 0, mask_st = 0, mask_ss = 0;
  length_list lengths{};                     ///< of keys
  length_list query_lengths{};               ///< rows from there on are padding
  const packed_sequences* packed = nullptr;  ///< where given, B is 1, and Tq and Tk are the rows of all sequences
  /// Of a sequence of a packed call: the rows of all of its sequences, which are how much memory the call goes through;
  /// 0: those of this problem.
  index_t all_queries = 0, all_keys = 0;
  /// Of a call that was made longer, or whose other rows come in another one: the rows that are asked for; count -1:
  /// all.
  index_t asked_first = 0, asked_count = -1;
  /// Then rows of bias are absolute positions, `win` and `left` count from them, and Tq = Tk new positions follow.
  const stream_ref* stream = nullptr;
  far_keys afar{};  ///< of a call that is one rank's part

  /// Rows of queries, and of keys, that the call as a whole goes through.
  [[gnu::always_inline]] index_t query_rows() const { return all_queries > 0 ? all_queries : B * Tq; }
  [[gnu::always_inline]] index_t key_rows() const { return all_keys > 0 ? all_keys : B * Tk; }
  /// Keys visible to batch element b by key_lengths alone.
  [[gnu::always_inline]] index_t key_limit(index_t b) const { return lengths.of(b, Tk); }
  /// Rows of batch element b that are no padding: from asked_first to before this one.
  [[gnu::always_inline]] index_t query_limit(index_t b) const {
    return asked_first + query_lengths.of(b, asked_count < 0 ? Tq : asked_count);
  }
  /// Batch elements, or packed sequences.
  [[gnu::always_inline]] index_t elements() const { return packed != nullptr ? packed->count : B; }
  /// Rows of one of them that are no padding, of a call that no backend made longer.
  [[gnu::always_inline]] index_t element_rows(index_t b) const {
    return packed != nullptr ? packed->queries.at(b + 1) - packed->queries.at(b) : query_limit(b);
  }
  /// Whether there may be padding.
  [[gnu::always_inline]] bool pads_queries() const { return query_lengths.data != nullptr || asked_count >= 0; }
  [[gnu::always_inline]] bool mask_hides(index_t b, index_t t, index_t s) const {
    return mask != nullptr && mask[b * mask_sb + t * mask_st + s * mask_ss] == std::byte{0};
  }
  /// A mask that is the same for every query hides keys, not pairs, and leaves the constant blocks constant.
  [[gnu::always_inline]] bool pair_mask() const { return mask != nullptr && mask_st != 0; }
};

/// A validated backward call; gradients that are not wanted are unset.
struct backward_problem : problem {
  field dy{}, dq{}, dk{}, dv{};
  bias_ref dbias{};  ///< kind none when not wanted, else that of bias
  /// Rows beyond the exponentials' range are provided for from the start, so that no fold is done again for them: a
  /// call of several passes must not ask a generated bias once more in each.
  bool folds_once = false;
};

/// Storage offset, in elements, of position t of a sequence or grid (b and c apart).
[[gnu::always_inline]] inline index_t position_offset(const field& f, const std::array<index_t, 3>& grid, index_t t) {
  if (grid[0] == 1 && grid[1] == 1) return t * f.sx[2];
  const index_t x2 = t % grid[2];
  const index_t rest = t / grid[2];
  return x2 * f.sx[2] + (rest % grid[1]) * f.sx[1] + (rest / grid[1]) * f.sx[0];
}

}  // namespace aft
