// SPDX-License-Identifier: Apache-2.0
/// @file checks/call.hpp  What an operator was called with, types erased, each tensor under its documented name.
///
/// Validation works on this record instead of on the views themselves, so that it is compiled once per file and not
/// once per combination of element types, ranks and biases.
#pragma once

#include <optional>

#include "../views/any_view.hpp"
#include "../problem/options.hpp"
#include "../problem/problem.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// A tensor and how an error message spells it: argument '<name>'<owner>.
struct argument {
  const char* name = "";
  any_view view{};
  const char* owner = "";
  bool given() const { return !view.empty(); }
};

/// The tensors of a bias, or of its gradient: w (dense, banded), u and v (factorized), r (a filter); or the function of
/// a generated one.
struct bias_arguments {
  bias_kind kind = bias_kind::none;
  argument w{"w", {}, " of bias"};
  argument u{"u", {}, " of bias"};
  argument v{"v", {}, " of bias"};
  argument r{"filter"};
  index_t heads = 1;     ///< of a generated bias
  bool batched = false;  ///< it has values of its own for each batch element
  generated_rows rows{};
};

/// What packed sequences and streams bring along, and what the problem then says of them. Most calls have neither, and
/// to clear it was a twentieth of a call on one position.
struct sequence_arguments {
  argument query_offsets{"query_offsets"}, key_offsets{"key_offsets"}, slot_ids{"slot_ids"};
  argument stream_bytes{"stream"};  ///< the bytes of a stream
  packed_sequences packed{};
  stream_ref stream{};
};

/// The two tensors of a sparse filter.
struct sparse_arguments {
  argument taps{"taps", {}, " of filter"}, values{"values", {}, " of filter"};
};

/// One call. A tensor that the operator does not have, and a gradient that is not wanted, is an empty view.
struct call {
  const char* op = "";        ///< as users spell it, with its namespace
  dtype type = dtype::other;  ///< of q, k, v, y and their gradients
  bool backward = false;
  bool cross_lengths = false;  ///< queries and keys may differ in number
  bool windowed = false;       ///< win is the call's window
  bool on_device = false;
  bool no_batch = false;  ///< all views are (time, channels): options may leave out the batch axis too
  band win{};
  argument q{"q"}, k{"k"}, v{"v"}, y{"y"};
  argument dy{"dy"}, dq{"dq"}, dk{"dk"}, dv{"dv"};
  bias_arguments bias{};
  bias_arguments dbias{bias_kind::none, {"dbias.w"}, {"dbias.u"}, {"dbias.v"}, {"dfilter"}};
  argument mask{"mask"}, key_lengths{"key_lengths"}, query_lengths{"query_lengths"};
  argument lse{"lse"}, average{"average"};
  std::optional<sparse_arguments> sparse{};       ///< of a call with a sparse filter
  std::optional<sequence_arguments> sequences{};  ///< of a call that has any of them
  const options* opt = nullptr;  ///< the caller's: a copy of them was a tenth of a call on one position
};

/// Packed sequences, streams and slots of the options.
inline void set_sequence_options(call& c, const options& opt) {
  if (opt.query_offsets.empty() && opt.key_offsets.empty() && opt.slot_ids.empty() && opt.stream.empty()) return;
  sequence_arguments& s = c.sequences.emplace();
  s.query_offsets.view = opt.query_offsets;
  s.key_offsets.view = opt.key_offsets;
  s.slot_ids.view = opt.slot_ids;
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
