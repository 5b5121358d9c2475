// SPDX-License-Identifier: Apache-2.0
/// @file arguments/biases.hpp  From a bias of the C interface to the record of its tensors.
#pragma once

#include <aft/aft.h>

#include <aft/core/checks/call.hpp>

namespace aft::c_interface {

/// Whether the call has a window, of which a banded bias is made.
enum class band_use { refused, allowed };

/// The bias of a call on data of c.type.
void set_bias(checks::call& c, const aft_bias* bias, band_use bands);
/// Its gradient, of the same kind; NULL is not wanted.
void set_bias_gradient(checks::call& c, const aft_bias* dbias);
/// The filter of a convolution, of 1 to 3 axes.
void set_filter(checks::call& c, const aft_tensor* filter);
void set_filter_gradient(checks::call& c, const aft_tensor* dfilter);
/// A sparse filter, of a call whose v is set.
void set_sparse_filter(checks::call& c, const aft_tensor* taps, const aft_tensor* values);
void set_value_gradient(checks::call& c, const aft_tensor* dvalues);

}  // namespace aft::c_interface
