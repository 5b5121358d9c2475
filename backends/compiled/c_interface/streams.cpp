// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/ops/streams.hpp>

#include "arguments/options.hpp"
#include "arguments/streams.hpp"
#include "arguments/tensors.hpp"
#include "device.hpp"
#include "errors.hpp"

using namespace aft::c_interface;

namespace {

template <class T>
void require_pointer(const char* op, const char* name, const T* pointer) {
  if (pointer == nullptr) aft::checks::fail(op, {name}, "a pointer", "a null pointer");
}

aft::any_view read_ids(const char* op, const char* name, const aft_tensor* ids, bool on_device) {
  aft::checks::argument a{name};
  require_tensor(op, a, ids, on_device);
  return a.view;
}

/// The slots of a call, and where they are.
struct slots {
  const char* op;
  settings given;
  aft::any_stream all;

  slots(const char* name, const aft_stream* stream, const aft_options* o, std::initializer_list<named> tensors)
      : op(name), given(read_executor(name, o, tensors)), all(read_stream(name, stream, given.where.on_device)) {}

  template <class Space>
  aft::stream_view<Space> in() const {
    return {all.spec(), all.data(), all.count()};
  }
  /// Does f(executor, slots) where they are. `check` is asked before a device is.
  template <class Check, class F>
  void run(const Check& check, const F& f) const {
    if (!given.where.on_device) return f(given.exec, in<aft::host_space>());
    aft::checks::require_stream(op, aft::cuda{}, all);
    check();
    static_cast<void>(
        done_on_device<float>(op, given.where, [&](const auto& exec) { f(exec, in<aft::device_space>()); }));
  }
};

const aft_tensor* state_of(const aft_stream* stream) {
  return stream == nullptr ? nullptr : stream->state;
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
    const slots s("aft::reset", stream, o, {{"state", state_of(stream)}});
    const auto check = [&] {
      if (slot != -1) aft::checks::require_slot(s.op, "slot", s.all, slot);
    };
    s.run(check, [&](const auto& exec, const auto& view) {
      if (slot == -1) {
        aft::reset(exec, view);
      } else {
        aft::reset(exec, view, slot);
      }
    });
  });
}

int aft_stream_copy(const aft_stream* stream, const aft_tensor* from, const aft_tensor* to, const aft_options* o) {
  return guarded([&] {
    const slots s("aft::copy", stream, o, {{"state", state_of(stream)}, {"from", from}, {"to", to}});
    const aft::any_view sources = read_ids(s.op, "from", from, s.given.where.on_device);
    const aft::any_view targets = read_ids(s.op, "to", to, s.given.where.on_device);
    s.run([&] { static_cast<void>(aft::checks::require_ids(s.op, sources, targets, true)); },
          [&](const auto& exec, const auto& view) { aft::copy(exec, view, sources, targets); });
  });
}

int aft_stream_position(const aft_stream* stream, int64_t slot, int64_t* position, const aft_options* o) {
  return guarded([&] {
    require_pointer("aft::position", "position", position);
    const slots s("aft::position", stream, o, {{"state", state_of(stream)}});
    s.run([&] { aft::checks::require_slot(s.op, "slot", s.all, slot); },
          [&](const auto& exec, const auto& view) { *position = aft::position(exec, view, slot); });
  });
}
