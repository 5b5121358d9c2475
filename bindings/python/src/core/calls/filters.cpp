// SPDX-License-Identifier: Apache-2.0
/// @file filters.cpp  The calls that make a filter sparse: its entropy, its Gumbel samples, its largest tap.
#include "call.hpp"

namespace aft::python {

namespace {

/// (H) of a filter (H, ...).
std::optional<extents> shape_of_heads(const array& r) {
  if (!r.given() || r.axes() < 1) return {};
  return extents{r.extent(0)};
}

double to_tau(const char* op, PyObject* value) {
  const double tau = PyFloat_AsDouble(value);
  if (tau == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(PyExc_TypeError, "%s: argument 'tau': expected a number, got %R", op, value);
  }
  return tau;
}

}  // namespace

PyObject* filter_entropy(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::filter_entropy";
    const std::vector<PyObject*> values = items(arguments, 3);  // r, threads, out
    array r;
    r.take({op, "r"}, values[0], access::read);
    options o;
    o.take_threads(op, values[1]);
    const maker m(values[0], r);
    result out;
    out.want({op, "out"}, values[2], m, shape_of_heads(r), type_of(r));
    check(without_lock([&] { return aft_filter_entropy(r.tensor(), out.tensor(), &o.c); }));
    return out.to_python(m);
  });
}

PyObject* filter_entropy_backward(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::filter_entropy_backward";
    const std::vector<PyObject*> values = items(arguments, 4);  // r, dout, threads, dr
    array r, dout;
    r.take({op, "r"}, values[0], access::read);
    dout.take({op, "dout"}, values[1], access::read);
    options o;
    o.take_threads(op, values[2]);
    const maker m(values[0], r);
    result dr;
    dr.want({op, "dr"}, values[3], m, shape_of(r), type_of(r));
    check(without_lock([&] { return aft_filter_entropy_backward(r.tensor(), dout.tensor(), dr.tensor(), &o.c); }));
    return dr.to_python(m);
  });
}

PyObject* gumbel_filter(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::gumbel_filter";
    const std::vector<PyObject*> values = items(arguments, 5);  // r, noise, tau, threads, out
    array r, noise;
    r.take({op, "r"}, values[0], access::read);
    noise.take({op, "noise"}, values[1], access::read);
    const double tau = to_tau(op, values[2]);
    options o;
    o.take_threads(op, values[3]);
    const maker m(values[0], r);
    result out;
    out.want({op, "out"}, values[4], m, shape_of(r), type_of(r));
    check(without_lock([&] { return aft_gumbel_filter(r.tensor(), noise.tensor(), tau, out.tensor(), &o.c); }));
    return out.to_python(m);
  });
}

PyObject* gumbel_filter_backward(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::gumbel_filter_backward";
    const std::vector<PyObject*> values = items(arguments, 6);  // r, noise, tau, dout, threads, dr
    array r, noise, dout;
    r.take({op, "r"}, values[0], access::read);
    noise.take({op, "noise"}, values[1], access::read);
    const double tau = to_tau(op, values[2]);
    dout.take({op, "dout"}, values[3], access::read);
    options o;
    o.take_threads(op, values[4]);
    const maker m(values[0], r);
    result dr;
    dr.want({op, "dr"}, values[5], m, shape_of(r), type_of(r));
    check(without_lock(
        [&] { return aft_gumbel_filter_backward(r.tensor(), noise.tensor(), tau, dout.tensor(), dr.tensor(), &o.c); }));
    return dr.to_python(m);
  });
}

PyObject* gumbel_filter_hard(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::gumbel_filter_hard";
    const std::vector<PyObject*> values = items(arguments, 3);  // r, threads, out
    array r;
    r.take({op, "r"}, values[0], access::read);
    options o;
    o.take_threads(op, values[1]);
    const maker m(values[0], r);
    result out;
    out.want({op, "out"}, values[2], m, shape_of(r), type_of(r));
    check(without_lock([&] { return aft_gumbel_filter_hard(r.tensor(), out.tensor(), &o.c); }));
    return out.to_python(m);
  });
}

}  // namespace aft::python
