// SPDX-License-Identifier: Apache-2.0
/// @file arguments/tensors.hpp  From the C interface's description of a tensor to the views that checks work on.
///
/// C++ calls have types for these questions; what is asked here, of values, is what those ask when they are compiled.
#pragma once

#include <aft/aft.h>

#include <aft/core/checks/call.hpp>

namespace aft::c_interface {

/// The ranks that a tensor may have.
struct rank_range {
  std::size_t low, high;
};

/// Describes `tensor` in `a`, as one of the host or of a device, or leaves it empty where there is none.
void set_tensor(const char* op, checks::argument& a, const aft_tensor* tensor, bool on_device);
/// The same of one that a call cannot do without.
void require_tensor(const char* op, checks::argument& a, const aft_tensor* tensor, bool on_device);

/// That the rank of a tensor, where there is one, is within `ranks`.
void require_ranks(const char* op, const checks::argument& a, const rank_range& ranks);
/// That its type is one of the four that data and biases may have.
void require_element(const char* op, const checks::argument& a);
/// That its type is `type`, which the argument `owner` has.
void require_type(const char* op, const checks::argument& a, dtype type, const char* owner);
/// That a bias holds the data's type, or the type arithmetic is done in.
void require_bias_type(const char* op, const checks::argument& a, dtype type);

}  // namespace aft::c_interface
