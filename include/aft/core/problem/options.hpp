// SPDX-License-Identifier: Apache-2.0
/// @file problem/options.hpp  What every operator can be told beyond its tensors.
#pragma once

#include <cstdint>

#include "../stream/view.hpp"
#include "../views/any_view.hpp"

namespace aft {

/// The function of q that multiplies the average (AFT Eq. 2 has the sigmoid). `none` does not read q at all;
/// `identity` is y = q * average; silu is q sigmoid(q).
enum class gate : std::uint8_t { none, identity, sigmoid, relu, tanh, silu };

/// What pairs outside a window mean: bias 0, the papers' global connectivity, or not seen at all (their ablation).
enum class outside : std::uint8_t { zero_bias, excluded };

/// What products of half and bfloat16 data may be made of. `automatic`: operands of the data's type, where that is
/// faster; a result then has the accuracy of the data's type. `full`: float, whatever it costs.
enum class arithmetic : std::uint8_t { automatic, full };

/// One plain aggregate for all operators: `aft::options{.causal = true, .lse = lse}`.
struct options {
  /// Key s is visible to query t iff s <= first_query + t.
  bool causal = false;
  /// What q does to the average.
  gate gate_fn = gate::sigmoid;
  /// Pairs outside the window of aft::local or the filter of aft::conv; the other operators refuse `excluded`.
  aft::outside outside = outside::zero_bias;
  /// (B|1, Tq|1, Tk), (Tq|1, Tk) or (Tk) of uint8, int8 or bool: 0 hides the pair.
  any_view mask{};
  /// (B) of int64 or int32: keys s >= length are hidden. Values below 0 count as 0, above Tk as Tk.
  any_view key_lengths{};
  /// Output (B, Tq, hk), float (double for double data): log sum_s exp(k + w), -inf where a row sees no key.
  /// Needs the number of heads of a bias to divide hk, else a key channel would have several. Backward calls read it:
  /// half a unit of it, as it was rounded, is then a relative error of every weight, in float 4e-7 where it is about
  /// 10, 4e-6 about 100, 3e-5 about 1000. Backward calls that are not given it have no such error.
  any_view lse{};
  /// Output (B, Tq, d), the data's type or float (double for double data): the average before the gate.
  /// Backward calls read it.
  any_view average{};
  /// (B) of int64 or int32: rows t >= length are padding. Nothing of them counts, not even NaN in q or dy: they get
  /// y = 0, average 0, lse -inf and dq = 0, and add to no gradient. Values below 0 count as 0, above Tq as Tq.
  any_view query_lengths{};
  /// Query t stands at position first_query + t for `causal`, for the window of aft::local and for the filter of
  /// aft::conv, so that the last rows of a sequence can be asked for alone. Rows of w and u are still t. At least 0; on
  /// a grid of several axes it is 0.
  index_t first_query = 0;
  /// Calls on float and double data do not look at it.
  aft::arithmetic arithmetic = aft::arithmetic::automatic;
  /// What came before: the call's rows are the next positions of sequences that slots of an aft::stream_view remember.
  /// Causal forward calls on sequences; see docs/guides/inference.md.
  any_stream stream{};
  /// (B), or (N) for packed sequences, of int64 or int32: the slot that each of them continues, -1: nothing of that one
  /// is read or written. Without it element b continues slot b. In the views' space; on a device one out of range is
  /// passed over like -1.
  any_view slot_ids{};
  /// (N + 1) of int64 or int32 in host memory, read before the call returns: sequence n is rows [o[n], o[n+1]) of q and
  /// y, which are (total, d) or (1, total, d). Each is a batch element of its own, in which positions begin at 0; a
  /// bias with a batch axis has B = N, one without has at least the rows and columns of the longest sequence. y, lse
  /// (total, hk), average (total, d), dq, dk and dv are bitwise those of a call for each with the same options; the
  /// gradient of what they share is their sum. The first entry is 0, none is less than the one before, the last is the
  /// number of rows: else a shape_error names the entry. Not with mask, key_lengths, query_lengths or a grid.
  any_view query_offsets{};
  /// The same for the rows of k and v. Empty: as query_offsets. With a stream both are the same.
  any_view key_offsets{};
};

/// What a call without options gets. One object for all: to make one for every call took a twentieth of a call on one
/// position.
inline constexpr options default_options{};

}  // namespace aft
