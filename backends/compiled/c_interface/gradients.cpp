// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "arguments/biases.hpp"
#include "arguments/calls.hpp"
#include "device.hpp"
#include "errors.hpp"

namespace aft::c_interface {

namespace {

/// Checks the call and computes its gradients in the arithmetic of its type.
template <family F>
void compute_gradients(operator_call& c) {
  const backward_problem p = checks::prepare(c.record, c.given.exec);
  run_in_place(c, [&]<class C>(C, const auto& exec) { run_backward<C, F>(p, exec); });
}

}  // namespace

}  // namespace aft::c_interface

using namespace aft::c_interface;
using aft::family;

int aft_full_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                      const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                      const aft_bias* dbias, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::full_backward", o,
                    {named::query(q),
                     {"k", k},
                     {"v", v},
                     {"bias", bias},
                     {"dy", dy},
                     {"dq", dq},
                     {"dk", dk},
                     {"dv", dv},
                     {"dbias", dbias}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_bias(c.record, bias, band_use::refused);
    set_gradients(c, dy, dq, dk, dv, sequence_ranks);
    set_bias_gradient(c.record, dbias);
    compute_gradients<family::full>(c);
  });
}

int aft_local_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                       int64_t before, int64_t after, const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk,
                       const aft_tensor* dv, const aft_bias* dbias, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::local_backward", o,
                    {named::query(q),
                     {"k", k},
                     {"v", v},
                     {"bias", bias},
                     {"dy", dy},
                     {"dq", dq},
                     {"dk", dk},
                     {"dv", dv},
                     {"dbias", dbias}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_bias(c.record, bias, band_use::allowed);
    set_window(c, before, after);
    set_gradients(c, dy, dq, dk, dv, sequence_ranks);
    set_bias_gradient(c.record, dbias);
    compute_gradients<family::local>(c);
  });
}

int aft_simple_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* dy,
                        const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::simple_backward", o,
                    {named::query(q), {"k", k}, {"v", v}, {"dy", dy}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
    set_inputs(c, q, k, v, sequence_ranks);
    set_gradients(c, dy, dq, dk, dv, sequence_ranks);
    compute_gradients<family::simple>(c);
  });
}

int aft_conv_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* filter,
                      const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                      const aft_tensor* dfilter, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::conv_backward", o,
                    {named::query(q),
                     {"k", k},
                     {"v", v},
                     {"filter", filter},
                     {"dy", dy},
                     {"dq", dq},
                     {"dk", dk},
                     {"dv", dv},
                     {"dfilter", dfilter}});
    const rank_range ranks = grid_ranks(c, filter);
    set_inputs(c, q, k, v, ranks);
    set_filter(c.record, filter);
    set_gradients(c, dy, dq, dk, dv, ranks);
    set_filter_gradient(c.record, dfilter);
    compute_gradients<family::conv>(c);
  });
}

int aft_conv_sparse_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* taps,
                             const aft_tensor* values, const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk,
                             const aft_tensor* dv, const aft_tensor* dvalues, const aft_options* o) {
  return guarded([&] {
    operator_call c("aft::conv_backward", o,
                    {named::query(q),
                     {"k", k},
                     {"v", v},
                     {"taps", taps},
                     {"values", values},
                     {"dy", dy},
                     {"dq", dq},
                     {"dk", dk},
                     {"dv", dv},
                     {"dvalues", dvalues}});
    const rank_range ranks = grid_ranks_of_taps(c, taps, v);
    set_inputs(c, q, k, v, ranks);
    set_sparse_filter(c.record, taps, values);
    set_gradients(c, dy, dq, dk, dv, ranks);
    set_value_gradient(c.record, dvalues);
    compute_gradients<family::sparse>(c);
  });
}
