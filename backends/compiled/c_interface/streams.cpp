// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/core/checks/options.hpp>

#include "errors.hpp"

namespace {

/// The answer that the option of that name gets. Arguments are not looked at, so that nothing depends on what a later
/// version will read.
int refuse(const char* op) noexcept {
  return aft::c_interface::guarded([&] { aft::checks::refuse_stream(op); });
}

}  // namespace

int aft_stream_bytes(const aft_stream_spec*, int64_t*) {
  return refuse("aft::stream_spec");
}

int aft_stream_reset(const aft_stream*, int64_t, const aft_options*) {
  return refuse("aft::reset");
}

int aft_stream_copy(const aft_stream*, const aft_tensor*, const aft_tensor*, const aft_options*) {
  return refuse("aft::copy");
}

int aft_stream_position(const aft_stream*, int64_t, int64_t*, const aft_options*) {
  return refuse("aft::position");
}
