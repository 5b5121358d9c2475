// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/ops/streams.hpp>

#include "arguments/options.hpp"
#include "arguments/streams.hpp"
#include "arguments/tensors.hpp"
#include "errors.hpp"

using namespace aft::c_interface;

namespace {

template <class T>
void require_pointer(const char* op, const char* name, const T* pointer) {
  if (pointer == nullptr) aft::checks::fail(op, {name}, "a pointer", "a null pointer");
}

aft::any_view read_ids(const char* op, const char* name, const aft_tensor* ids) {
  aft::checks::argument a{name};
  require_tensor(op, a, ids);
  return a.view;
}

}  // namespace

int aft_stream_bytes(const aft_stream_spec* spec, int64_t* bytes) {
  return guarded([&] {
    constexpr const char* op = "aft::stream_spec";
    require_pointer(op, "bytes", bytes);
    *bytes = read_spec(op, spec).bytes();
  });
}

int aft_stream_reset(const aft_stream* stream, int64_t slot, const aft_options* o) {
  return guarded([&] {
    constexpr const char* op = "aft::reset";
    const aft::cpu exec = read_executor(op, o);
    const auto view = read_stream(op, stream);
    if (slot == -1) {
      aft::reset(exec, view);
    } else {
      aft::reset(exec, view, slot);
    }
  });
}

int aft_stream_copy(const aft_stream* stream, const aft_tensor* from, const aft_tensor* to, const aft_options* o) {
  return guarded([&] {
    constexpr const char* op = "aft::copy";
    const aft::cpu exec = read_executor(op, o);
    const auto view = read_stream(op, stream);
    const aft::any_view sources = read_ids(op, "from", from);
    aft::copy(exec, view, sources, read_ids(op, "to", to));
  });
}

int aft_stream_position(const aft_stream* stream, int64_t slot, int64_t* position, const aft_options* o) {
  return guarded([&] {
    constexpr const char* op = "aft::position";
    const aft::cpu exec = read_executor(op, o);
    require_pointer(op, "position", position);
    *position = aft::position(exec, read_stream(op, stream), slot);
  });
}
