// SPDX-License-Identifier: Apache-2.0
/// @file stream_call.hpp  Calls of one operator that go on from slots, with the operands of all of them.
#pragma once

#include <string>
#include <vector>

#include "../../harness/operands.hpp"

namespace aft_bench {

/// An operator on as many sequences as the shape has, a slot each. Kernels of streams are compiled with this class
/// alone, which takes as long as an operator does: the races know its name only.
class stream_call {
 public:
  /// What the rows of a bias have in common. `alike`: one row that serves every position, however far a sequence goes.
  /// `own`: one for each of `longest` positions, as AFT Eq. 2 and 4 have it.
  enum class bias_rows { alike, own };

  /// `what` is simple, full, local<s> for |t - s'| < s, or conv<taps>. `s`: sequences, new positions of a call,
  /// channels. `longest`: positions that a slot of full has room for.
  stream_call(const std::string& what, const shape& s, index_t longest, bias_rows rows);

  /// Takes all slots to a position with random keys and values: the first slot by calls, the others as copies.
  void fill(const aft::cpu& exec, index_t positions);
  /// One call for all slots. Those of full go back afterwards, as their position is part of what is measured.
  void advance(const aft::cpu& exec);
  /// All positions of the shape, from the first one on, in calls of `length`.
  void chunks(const aft::cpu& exec, index_t length);
  /// The same without a stream.
  void uncut(const aft::cpu& exec);

  /// Bytes of a slot.
  double slot_bytes() const { return static_cast<double>(spec_.bytes()); }
  /// Of all slots together, what a position at or past `position` has to read of the positions in reach: e^k and v.
  double kept_bytes(index_t position) const;

 private:
  using rows_in = aft::tensor_view<const float, 3>;
  using rows_out = aft::tensor_view<float, 3>;

  aft::stream_view<> slots() { return {spec_, memory_.data(), s_.B}; }
  void call(const aft::cpu& exec, const rows_in& q, const rows_in& k, const rows_in& v, const rows_out& y,
            const aft::options& options);
  void repeat(index_t length, index_t positions);
  void rewind();

  std::string what_;
  index_t number_ = 0;  ///< s of local<s>, taps of conv<taps>
  shape s_;
  index_t longest_;
  bias_rows rows_;
  aft::stream_spec spec_;
  sequences<float> x_;
  buffer<float> bias_, memory_;
  std::vector<std::byte> headers_;
};

}  // namespace aft_bench
