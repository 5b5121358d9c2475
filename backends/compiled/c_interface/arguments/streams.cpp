// SPDX-License-Identifier: Apache-2.0
#include "streams.hpp"

// For the engine of a stream, which a spec brings along.
#include <aft/aft.hpp>
#include <aft/core/checks/validation.hpp>
#include <aft/interop/dlpack.hpp>

#include "tensors.hpp"

namespace aft::c_interface {

using checks::fail;
using checks::text;

namespace {

dtype type_of_spec(const char* op, const aft_stream_spec& spec) {
  const detail::dl_type came{spec.dtype.code, spec.dtype.bits};
  if (spec.dtype.lanes == 1) {
    if (came == detail::dl_type_of<float>) return dtype::f32;
    if (came == detail::dl_type_of<double>) return dtype::f64;
    if (came == detail::dl_type_of<half>) return dtype::f16;
    if (came == detail::dl_type_of<bfloat16>) return dtype::bf16;
  }
  fail(op, {"spec"}, "a dtype of float, double, half or bfloat16", detail::dl_name(came, spec.dtype.lanes).c_str());
}

}  // namespace

stream_spec read_spec(const char* op, const aft_stream_spec* spec) {
  if (spec == nullptr) fail(op, {"spec"}, "a spec", "a null pointer");
  const dtype type = type_of_spec(op, *spec);
  switch (spec->op) {
    case AFT_FULL:
      return stream_spec::of_values(stream_operator::full, type, spec->d, spec->hk, 0, 0, 0, spec->capacity);
    case AFT_LOCAL:
      return stream_spec::of_values(stream_operator::local, type, spec->d, spec->hk, spec->before, spec->after, 0, 0);
    case AFT_SIMPLE: return stream_spec::of_values(stream_operator::simple, type, spec->d, spec->hk, 0, 0, 0, 0);
    case AFT_CONV: return stream_spec::of_values(stream_operator::conv, type, spec->d, spec->hk, 0, 0, spec->taps, 0);
    default: fail(op, {"spec"}, "an op of AFT_FULL, AFT_LOCAL, AFT_SIMPLE or AFT_CONV", index_t{spec->op});
  }
}

any_stream read_stream(const char* op, const aft_stream* stream, bool on_device) {
  if (stream == nullptr) fail(op, {"stream"}, "a stream", "a null pointer");
  const stream_spec spec = read_spec(op, stream->spec);
  checks::argument state{"state"};
  require_tensor(op, state, stream->state, on_device);
  if (state.view.type() != dtype::u8) fail(op, state, "elements of uint8", name_of(state.view.type()));
  require_ranks(op, state, {2, 2});
  checks::require_extent(op, state, 1, "bytes", spec.bytes());
  checks::require_sane(op, state);
  const index_t count = state.view.extent(0);
  if (count > 0 && (state.view.stride(1) != 1 || (count > 1 && state.view.stride(0) != spec.bytes()))) {
    fail(op, state, text("row-major memory, strides (") << spec.bytes() << ", 1)",
         text("strides (") << state.view.stride(0) << ", " << state.view.stride(1) << ")");
  }
  if (on_device) return stream_view<device_space>{spec, state.view.data(), count};
  return stream_view<host_space>{spec, state.view.data(), count};
}

}  // namespace aft::c_interface
