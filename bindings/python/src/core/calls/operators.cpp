// SPDX-License-Identifier: Apache-2.0
/// @file operators.cpp  Forward and backward calls of the four operators.
#include "call.hpp"

namespace aft::python {

namespace {

/// The type of lse, and of an average that a backward call reads without another rounding.
element_type type_of_sums(const call& c) {
  if (!c.v.given() || !is_floating(c.v.tensor()->dtype)) return {};
  return {float_code, static_cast<std::uint8_t>(c.v.tensor()->dtype.bits == 64 ? 64 : 32), 1};
}

element_type type_of_data(const call& c) {
  return c.v.given() ? c.v.tensor()->dtype : element_type{};
}

/// The shape of lse: one for each key channel, also where several value channels share it.
std::optional<extents> with_key_channels(std::optional<extents> shape, const array& k) {
  if (!shape || shape->empty() || !k.given() || k.axes() < 1 || k.axes() > array::most_axes) return {};
  shape->back() = k.extent(-1);
  return shape;
}

// Without Python's lock: nothing in these two may touch an object. C functions are called by their own names, for each
// has other arguments.
int run_forward(const call& c, const aft_tensor* y) {
  const aft_tensor *q = c.q.tensor(), *k = c.k.tensor(), *v = c.v.tensor();
  switch (c.op) {
    case AFT_FULL: return aft_full(q, k, v, c.bias.bias(), y, &c.opt.c);
    case AFT_LOCAL: return aft_local(q, k, v, c.bias.bias(), c.before, c.after, y, &c.opt.c);
    case AFT_SIMPLE:
      return aft_simple(q, k, v, y, &c.opt.c);
      // A convolution is one of two functions, by the kind of its filter.
    default: break;
  }
  const aft_tensor* const filter = c.filter.values().tensor();
  if (c.filter.is_sparse()) return aft_conv_sparse(q, k, v, c.filter.taps().tensor(), filter, y, &c.opt.c);
  return aft_conv(q, k, v, filter, y, &c.opt.c);
}

/// What a backward call writes, and dy; NULL is not wanted. Of the bias and the filter there is one.
struct gradients {
  const aft_tensor *dy, *dq, *dk, *dv, *dfilter;
  const aft_bias* dbias;
};

int run_backward(const call& c, const gradients& g) {
  const aft_tensor *q = c.q.tensor(), *k = c.k.tensor(), *v = c.v.tensor();
  const aft_bias* const bias = c.bias.bias();
  switch (c.op) {
    case AFT_FULL: return aft_full_backward(q, k, v, bias, g.dy, g.dq, g.dk, g.dv, g.dbias, &c.opt.c);
    case AFT_LOCAL:
      return aft_local_backward(q, k, v, bias, c.before, c.after, g.dy, g.dq, g.dk, g.dv, g.dbias, &c.opt.c);
    case AFT_SIMPLE: return aft_simple_backward(q, k, v, g.dy, g.dq, g.dk, g.dv, &c.opt.c);
    default: break;
  }
  const aft_tensor* const filter = c.filter.values().tensor();
  if (c.filter.is_sparse()) {
    return aft_conv_sparse_backward(q, k, v, c.filter.taps().tensor(), filter, g.dy, g.dq, g.dk, g.dv, g.dfilter,
                                    &c.opt.c);
  }
  return aft_conv_backward(q, k, v, filter, g.dy, g.dq, g.dk, g.dv, g.dfilter, &c.opt.c);
}

}  // namespace

PyObject* forward(PyObject*, PyObject* arguments) {
  return guarded([&]() -> object {
    const std::vector<PyObject*> values = items(arguments, call::arguments + 3);
    PyObject* const* const outputs = values.data() + call::arguments;
    call c(values.data(), direction::forward);
    const maker m(c.like, c.q.given() ? c.q : c.k, c.on);
    result y, lse, average;
    // Made before the library has judged the call: what it refuses then was written by nobody and is dropped.
    y.want({c.name, "out"}, outputs[0], m, c.shape(), type_of_data(c));
    // Of y as it is, for a place that was given tells the rows of a call without q.
    const std::optional<extents> shape = y.shape();
    lse.want({c.name, "lse"}, outputs[1], m, with_key_channels(shape, c.k), type_of_sums(c));
    average.want({c.name, "average"}, outputs[2], m, shape, type_of_sums(c));
    // After all are made: options point to them.
    c.opt.c.lse = lse.tensor();
    c.opt.c.average = average.tensor();
    run(c.name, c.on, c.opt.c, [&] { return run_forward(c, y.tensor()); });
    // One result comes alone, several as a tuple in the order of the keywords.
    object first = y.to_python(m);
    if (!lse.wanted() && !average.wanted()) return first;
    if (!average.wanted()) return object::owned(PyTuple_Pack(2, first.get(), lse.to_python(m).get()));
    const object last = average.to_python(m);
    if (!lse.wanted()) return object::owned(PyTuple_Pack(2, first.get(), last.get()));
    return object::owned(PyTuple_Pack(3, first.get(), lse.to_python(m).get(), last.get()));
  });
}

PyObject* backward(PyObject*, PyObject* arguments) {
  return guarded([&]() -> object {
    const std::vector<PyObject*> values = items(arguments, call::arguments + 7);
    PyObject* const* const more = values.data() + call::arguments;
    call c(values.data(), direction::backward);
    array dy, lse, average;
    dy.take({c.name, "dy"}, more[0], access::read, c.on);
    lse.take({c.name, "lse"}, more[1], access::read, c.on);
    average.take({c.name, "average"}, more[2], access::read, c.on);
    c.opt.c.lse = lse.tensor();
    c.opt.c.average = average.tensor();
    const maker m(c.like, c.q.given() ? c.q : c.k, c.on);
    const element_type type = type_of_data(c);
    result dq, dk, dv;
    bias_result dbias;
    filter_result dfilter;
    // A gate that does not read q gives a gradient of 0, of the shape that q would have.
    dq.want({c.name, "dq"}, more[3], m, c.q.given() ? shape_of(c.q) : shape_of(dy), type);
    dk.want({c.name, "dk"}, more[4], m, shape_of(c.k), type);
    dv.want({c.name, "dv"}, more[5], m, shape_of(c.v), type);
    // simple has neither.
    if (c.op == AFT_CONV) {
      dfilter.want(c.name, more[6], m, c.filter);
    } else if (c.op != AFT_SIMPLE) {
      dbias.want(c.name, more[6], m, c.bias);
    }
    const gradients g{dy.tensor(), dq.tensor(), dk.tensor(), dv.tensor(), dfilter.tensor(), dbias.bias()};
    run(c.name, c.on, c.opt.c, [&] { return run_backward(c, g); });
    // Those that were not wanted are None in their place.
    const object q = dq.to_python(m), k = dk.to_python(m), v = dv.to_python(m);
    if (c.op == AFT_SIMPLE) return object::owned(PyTuple_Pack(3, q.get(), k.get(), v.get()));
    const object last = c.op == AFT_CONV ? dfilter.to_python(m) : dbias.to_python(m);
    return object::owned(PyTuple_Pack(4, q.get(), k.get(), v.get(), last.get()));
  });
}

}  // namespace aft::python
