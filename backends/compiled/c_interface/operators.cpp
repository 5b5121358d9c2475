// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "arguments/biases.hpp"
#include "arguments/calls.hpp"
#include "device.hpp"
#include "errors.hpp"

namespace aft::c_interface {

namespace {

/// Checks the call and runs it in the arithmetic of its type.
template <family F>
void run(operator_call& c) {
  const backward_problem p = checks::prepare(c.record, c.given.exec);
  run_in_place(c, [&]<class C>(C, const auto& exec) { run_forward<C, F>(p, exec); });
}

}  // namespace

}  // namespace aft::c_interface

using namespace aft::c_interface;
using aft::family;

int aft_full(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias, const aft_tensor* y,
             const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::full", o, {named::query(q), {"k", k}, {"v", v}, {"bias", bias}, {"y", y}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_bias(c.record, bias, band_use::refused);
    set_output(c, y, sequence_ranks);
    run<family::full>(c);
  });
}

int aft_local(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias, int64_t before,
              int64_t after, const aft_tensor* y, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::local", o, {named::query(q), {"k", k}, {"v", v}, {"bias", bias}, {"y", y}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_bias(c.record, bias, band_use::allowed);
    set_window(c, before, after);
    set_output(c, y, sequence_ranks);
    run<family::local>(c);
  });
}

int aft_simple(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* y,
               const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::simple", o, {named::query(q), {"k", k}, {"v", v}, {"y", y}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_output(c, y, sequence_ranks);
    run<family::simple>(c);
  });
}

int aft_conv(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* filter,
             const aft_tensor* y, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::conv", o, {named::query(q), {"k", k}, {"v", v}, {"filter", filter}, {"y", y}});
    const rank_range ranks = grid_ranks(c, filter);
    set_inputs(c, q, k, v, ranks);
    set_filter(c.record, filter);
    set_output(c, y, ranks);
    run<family::conv>(c);
  });
}

int aft_conv_sparse(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* taps,
                    const aft_tensor* values, const aft_tensor* y, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::conv", o,
                    {named::query(q), {"k", k}, {"v", v}, {"taps", taps}, {"values", values}, {"y", y}});
    const rank_range ranks = grid_ranks_of_taps(c, taps, v);
    set_inputs(c, q, k, v, ranks);
    set_sparse_filter(c.record, taps, values);
    set_output(c, y, ranks);
    run<family::sparse>(c);
  });
}
