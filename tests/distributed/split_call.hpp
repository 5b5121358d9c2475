// SPDX-License-Identifier: Apache-2.0
/// @file split_call.hpp  A call of the harness cut over threads of this process, each with its own part of the tensors.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/harness.hpp"

namespace aft::test {

/// How many queries and keys each rank has; of a grid, indices of the outermost axis.
struct split_lengths {
  std::vector<index_t> queries, keys;
};

/// The parts of random cuts: uneven, and where `empty` says so some without a position. Depends on the seed only.
split_lengths random_lengths(const setup& s, int ranks, unsigned seed);

/// Bytes that a rank received: by messages that hold records of all ranks, and from other ranks in send_recv.
struct traffic {
  index_t gathered = 0, received = 0, messages = 0;
};

/// What one rank's thread threw; empty: nothing.
struct split_results {
  results joint;                    ///< of all ranks, as one call's
  std::vector<std::string> thrown;  ///< by rank
  std::vector<traffic> moved;       ///< by rank
};

/// Runs the call on all ranks. Gradients of what is whole on every rank have to be the same on all: else it is
/// `damage`.
split_results split_forward(dtype type, const setup& s, const numbers& x, const split_lengths& cut);
split_results split_backward(dtype type, const setup& s, const numbers& x, const split_lengths& cut);

/// Whether messages that have begun move when they are waited for, as with a communicator that cannot begin them.
bool& messages_wait();

/// Fails the running test where a cut call does not meet the oracle of the whole.
void check_split(dtype type, const setup& s, const numbers& x, const split_lengths& cut);

/// What split_call.cpp needs of a storage type.
struct split_functions {
  using forward_function = split_results (*)(const setup&, const numbers&, const split_lengths&);
  using backward_function = split_results (*)(const setup&, const numbers&, const split_lengths&, const results* saved);

  forward_function forward;
  backward_function backward;
  forward_function device_forward;  ///< on the emulated device, where the tests have one
  backward_function device_backward;
};
extern const split_functions split_f32, split_f64, split_f16, split_bf16;

}  // namespace aft::test
