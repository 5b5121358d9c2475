// SPDX-License-Identifier: Apache-2.0
/// @file setup.hpp  One call of an operator as run-time values: its shape, its options and the numbers it works on.
///
/// Types, ranks and bias forms are run-time switches here, so that a test is a loop over plain structs and the typed
/// code behind it is compiled once for all tests.
#pragma once

#include <aft/core/problem/options.hpp>
#include <aft/math/window.hpp>

#include <string>
#include <vector>

#include "strided.hpp"

namespace aft::test {

enum class op { full, local, simple, conv };

/// The shape a bias is stored in; `dense_1htt` has a batch axis of extent 1, `factorized_mixed` has u (Tq,n) and v
/// (H,Tk,n).
enum class bias_form {
  dense_tt,
  dense_htt,
  dense_bhtt,
  dense_1htt,
  factorized_tn,
  factorized_htn,
  factorized_mixed,
  banded_tj,
  banded_htj
};

/// The shape of options.mask: (1,1,Tk), (B,1,Tk), (1,Tq,Tk), (B,Tq,Tk), and without axes (Tk), (Tq,Tk).
enum class mask_form { none, keys, batch_keys, pairs, batch_pairs, flat_keys, flat_pairs };

struct setup {
  op call = op::full;
  index_t B = 2, Tq = 7, Tk = 7, d = 4;
  index_t hk = 0;  ///< key channels, 0: as many as d
  index_t H = 1;
  bias_form bias = bias_form::dense_htt;
  index_t n = 3;                ///< rank of a factorized bias
  window win{};                 ///< local
  std::vector<index_t> grid{};  ///< conv: lengths of the axes; Tk follows from it, and Tq where `queries` is below 0
  std::vector<index_t> taps{};
  index_t queries = -1;  ///< conv on a sequence: the number of queries
  bool causal = false;
  mask_form mask = mask_form::none;
  bool lengths = false;
  aft::outside outside = aft::outside::zero_bias;
  gate gate_fn = gate::sigmoid;
  layout inputs = layout::row_major, outputs = layout::row_major;
  double q_scale = 1, k_scale = 1, v_scale = 1, w_scale = 1;
  unsigned seed = 1;
  bool save = true;             ///< forward: ask for lse and average; backward: pass them in
  bool narrow_average = false;  ///< average in the data's type; otherwise in the arithmetic type
  bool in_place = false;        ///< y is q
  index_t first_query = 0;
  bool query_lengths = false;
  bool narrow_integers = false;  ///< lengths of int32, a mask of int8
  aft::arithmetic arithmetic = aft::arithmetic::automatic;
  /// Packed sequences: how many queries each has, and keys where those differ. B, Tq, Tk and grid follow.
  std::vector<index_t> packed{}, packed_keys{};
  index_t spare = 0;            ///< of a packed call: rows and columns that its bias has beyond the longest sequence
  std::vector<index_t> cuts{};  ///< forward: as calls with a stream that take so many positions each; empty: one call
  bool interrupted = false;     ///< of a stream: elements take turns, and every call is made wrongly first
  bool generated = false;       ///< a dense bias comes from a function that says its numbers, on the CPU

  const std::vector<index_t>& key_counts() const { return packed_keys.empty() ? packed : packed_keys; }
  index_t key_channels() const { return hk == 0 ? d : hk; }
  bool pair_mask() const {
    return mask == mask_form::pairs || mask == mask_form::batch_pairs || mask == mask_form::flat_pairs;
  }
  /// lse has one value per key channel, so it exists where the channels of a key channel share a head.
  bool has_lse() const { return call == op::simple || heads() == 0 || key_channels() % heads() == 0; }
  index_t heads() const;
  bool dense() const {
    return (call == op::full || call == op::local) && (bias == bias_form::dense_tt || bias == bias_form::dense_htt ||
                                                       bias == bias_form::dense_bhtt || bias == bias_form::dense_1htt);
  }
  bool generates() const { return generated && dense(); }
  bool one_head() const {
    return bias == bias_form::dense_tt || bias == bias_form::factorized_tn || bias == bias_form::banded_tj;
  }
};

inline index_t setup::heads() const {
  if (call == op::simple) return 1;
  return call != op::conv && one_head() ? 1 : H;
}

/// Row-major numbers of a call. A test changes them freely before it runs the call; storing rounds them to the type.
struct numbers {
  std::vector<double> q, k, v, dy;
  std::vector<double> w;     ///< dense or banded
  std::vector<double> u, f;  ///< factorized, w = u f^T
  std::vector<double> r;     ///< filter
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> query_lengths;
};

/// Derived extents filled in: a convolution's Tq and Tk, and the number of key channels.
setup completed(setup s);

/// Normal deviates at the scales of the setup, a mask that hides a third, lengths from 0 to Tk and to Tq. Depends on
/// the seed only. Rows beyond a query length hold NaN in q and dy.
numbers random_numbers(const setup& s);

/// The call as text, for the message of a failure.
std::string describe(const setup& s, dtype type);

/// Extents of the tensors of a call.
std::vector<index_t> sequence_extents(const setup& s, index_t T, index_t channels);
std::vector<index_t> w_extents(const setup& s);
std::vector<index_t> u_extents(const setup& s);
std::vector<index_t> f_extents(const setup& s);
std::vector<index_t> filter_extents(const setup& s);
std::vector<index_t> mask_extents(const setup& s);

/// The storage types of the library.
inline constexpr dtype all_types[] = {dtype::f32, dtype::f64, dtype::f16, dtype::bf16};

}  // namespace aft::test
