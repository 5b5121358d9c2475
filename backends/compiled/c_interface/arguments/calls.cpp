// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include <aft/ops/erase.hpp>

namespace aft::c_interface {

using checks::argument;

operator_call::operator_call(const char* op, const aft_options* o, std::initializer_list<named> tensors)
    : given(read_options(op, o, tensors)) {
  record.op = op;
  record.on_device = given.where.on_device;
  record.cross_lengths = true;
  checks::set_options(record, given.opt);
}

namespace {

void set_data(operator_call& c, argument& a, const aft_tensor* tensor, const rank_range& ranks) {
  set_tensor(c.record.op, a, tensor, c.record.on_device);
  require_ranks(c.record.op, a, ranks);
  require_element(c.record.op, a);
  require_type(c.record.op, a, c.record.type, "v");
}

void require_tensor_of_data(operator_call& c, argument& a, const aft_tensor* tensor, const rank_range& ranks) {
  require_tensor(c.record.op, a, tensor, c.record.on_device);
  set_data(c, a, tensor, ranks);
}

}  // namespace

void set_inputs(operator_call& c, const aft_tensor* q, const aft_tensor* k, const aft_tensor* v,
                const rank_range& ranks) {
  checks::call& record = c.record;
  require_tensor(record.op, record.v, v, record.on_device);
  record.type = record.v.view.type();
  require_tensor_of_data(c, record.v, v, ranks);
  // A gate that does not read q leaves nothing to ask of it.
  if (c.given.opt.gate_fn != gate::none) require_tensor_of_data(c, record.q, q, ranks);
  require_tensor_of_data(c, record.k, k, ranks);
  record.no_batch = record.k.view.rank() == 2 && record.v.view.rank() == 2;
}

void set_output(operator_call& c, const aft_tensor* y, const rank_range& ranks) {
  require_tensor_of_data(c, c.record.y, y, ranks);
  c.record.no_batch = c.record.no_batch && c.record.y.view.rank() == 2;
}

void set_gradients(operator_call& c, const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk,
                   const aft_tensor* dv, const rank_range& ranks) {
  c.record.backward = true;
  require_tensor_of_data(c, c.record.dy, dy, ranks);
  c.record.no_batch = c.record.no_batch && c.record.dy.view.rank() == 2;
  set_data(c, c.record.dq, dq, ranks);
  set_data(c, c.record.dk, dk, ranks);
  set_data(c, c.record.dv, dv, ranks);
}

void set_window(operator_call& c, std::int64_t before, std::int64_t after) {
  c.record.windowed = true;
  c.record.win = {true, before, after};
}

rank_range grid_ranks(const operator_call& c, const aft_tensor* filter) {
  const char* const op = c.record.op;
  argument a{"filter"};
  require_tensor(op, a, filter, c.record.on_device);
  require_ranks(op, a, {2, 4});
  const std::size_t rank = a.view.rank();
  return {rank == 2 ? 2 : rank + 1, rank + 1};
}

rank_range grid_ranks_of_taps(const operator_call& c, const aft_tensor* taps, const aft_tensor* v) {
  const char* const op = c.record.op;
  argument a{"taps", {}, " of filter"}, values{"v"};
  require_tensor(op, a, taps, c.record.on_device);
  require_ranks(op, a, {2, 3});
  require_tensor(op, values, v, c.record.on_device);
  if (a.view.rank() == 2) return sequence_ranks;
  require_ranks(op, values, {3, 5});
  return {values.view.rank(), values.view.rank()};
}

}  // namespace aft::c_interface
