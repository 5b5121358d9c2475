// SPDX-License-Identifier: Apache-2.0
/// @file arguments/calls.hpp  A call of the C interface as the record that the checks of C++ calls work on.
#pragma once

#include <aft/aft.h>

#include <aft/core/checks/call.hpp>

#include "options.hpp"
#include "tensors.hpp"

namespace aft::c_interface {

/// One call of an operator. The record points to the options beside it, so that it stays where it was made.
struct operator_call {
  settings given;
  checks::call record;

  operator_call(const char* op, const aft_options* o, std::initializer_list<named> tensors);
  operator_call(const operator_call&) = delete;
  operator_call& operator=(const operator_call&) = delete;
};

/// q, k and v of ranks within `ranks`. v names the type that all but biases have.
void set_inputs(operator_call& c, const aft_tensor* q, const aft_tensor* k, const aft_tensor* v,
                const rank_range& ranks);
void set_output(operator_call& c, const aft_tensor* y, const rank_range& ranks);
void set_gradients(operator_call& c, const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk,
                   const aft_tensor* dv, const rank_range& ranks);
void set_window(operator_call& c, std::int64_t before, std::int64_t after);

/// Ranks of sequences, (batch, time, channels) or (time, channels).
inline constexpr rank_range sequence_ranks{2, 3};
/// Ranks of what a filter slides over. A grid of several axes has its batch axis: (H, W, d) would read as (B, T, d).
rank_range grid_ranks(const operator_call& c, const aft_tensor* filter);
/// The same of a sparse filter, whose taps say no more than whether there may be several axes.
rank_range grid_ranks_of_taps(const operator_call& c, const aft_tensor* taps, const aft_tensor* v);

}  // namespace aft::c_interface
