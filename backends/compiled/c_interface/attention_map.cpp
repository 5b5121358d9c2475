// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "arguments/biases.hpp"
#include "arguments/calls.hpp"
#include "device.hpp"
#include "errors.hpp"

namespace aft::c_interface {

namespace {

/// In the arithmetic of the data's type, where that matters. The problem is made twice for a device: a call that is
/// wrong in itself says so before any device is asked for.
void run_map(const operator_call& c) {
  if (c.record.on_device) static_cast<void>(checks::prepare_map(c.record));
  const auto on_device = [&]<class C>(C) {
    return done_on_device<C>(c.record.op, c.given.where,
                             [&](const auto& exec) { checks::run_map_on_device<C>(c.record, exec); });
  };
  if (c.record.type == dtype::f64 ? on_device(double{}) : on_device(float{})) return;
  checks::run_map(c.record, c.given.exec);
}

}  // namespace

}  // namespace aft::c_interface

using namespace aft::c_interface;

int aft_attention_map(const aft_tensor* k, const aft_bias* bias, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::attention_map", o, {{"k", k}, {"bias", bias}, {"out", out}});
    aft::checks::call& record = c.record;
    require_tensor(record.op, record.k, k, record.on_device);
    require_ranks(record.op, record.k, sequence_ranks);
    require_element(record.op, record.k);
    record.type = record.k.view.type();
    set_bias(record, bias, band_use::refused);
    record.y = {"out"};
    require_tensor(record.op, record.y, out, record.on_device);
    require_ranks(record.op, record.y, {3, 4});
    require_element(record.op, record.y);
    record.no_batch = record.k.view.rank() == 2 && record.y.view.rank() == 3;
    // The map has neither of them.
    record.lse.view = {};
    record.average.view = {};
    run_map(c);
  });
}
