// SPDX-License-Identifier: Apache-2.0
/// @file arguments/streams.hpp  A stream of the C interface as the view that C++ calls take.
#pragma once

#include <aft/aft.h>

#include <aft/core/stream/view.hpp>

namespace aft::c_interface {

/// What a spec says in values; members that its operator has no use for are not looked at.
stream_spec read_spec(const char* op, const aft_stream_spec* spec);
/// The slots of a stream, on a device or on the host.
any_stream read_stream(const char* op, const aft_stream* stream, bool on_device);

}  // namespace aft::c_interface
