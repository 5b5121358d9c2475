// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "arguments/biases.hpp"
#include "arguments/calls.hpp"
#include "errors.hpp"

using namespace aft::c_interface;

int aft_attention_map(const aft_tensor* k, const aft_bias* bias, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::attention_map", o);
    aft::checks::call& record = c.record;
    require_tensor(record.op, record.k, k);
    require_ranks(record.op, record.k, sequence_ranks);
    require_element(record.op, record.k);
    record.type = record.k.view.type();
    set_bias(record, bias, band_use::refused);
    record.y = {"out"};
    require_tensor(record.op, record.y, out);
    require_ranks(record.op, record.y, {3, 4});
    require_element(record.op, record.y);
    record.no_batch = record.k.view.rank() == 2 && record.y.view.rank() == 3;
    // The map has neither of them.
    record.lse.view = {};
    record.average.view = {};
    aft::checks::run_map(record, c.given.exec);
  });
}
