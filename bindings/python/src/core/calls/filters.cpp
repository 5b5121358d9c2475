// SPDX-License-Identifier: Apache-2.0
/// @file filters.cpp  The calls that make a filter sparse: its entropy, its Gumbel samples, its largest tap.
#include "call.hpp"

#include <array>
#include <initializer_list>

namespace aft::python {

namespace {

/// (H) of a filter (H, ...).
std::optional<extents> shape_of_heads(const array& r) {
  if (!r.given() || r.axes() < 1) return {};
  return extents{r.extent(0)};
}

/// Any number that Python takes for a float; -1 is one, so that the error has to be asked for.
double to_tau(const char* op, PyObject* value) {
  const double tau = PyFloat_AsDouble(value);
  if (tau == -1.0 && PyErr_Occurred() != nullptr) {
    // A whole number beyond the range of double is a number all the same, of a wrong value.
    const bool is_number = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (is_number) {
      raise(PyExc_ValueError, "%s: argument 'tau': expected a finite number above 0, got one beyond double", op);
    }
    raise(PyExc_TypeError, "%s: argument 'tau': expected a number, got %R", op, value);
  }
  return tau;
}

/// A call with one result, of the type of r. Its arguments are the arrays that `inputs` names, r first, then tau where
/// it takes one, the threads, and what becomes of the result.
template <class Shape, class Call>
PyObject* call_on_filter(const char* op, PyObject* arguments, std::initializer_list<const char*> inputs, bool takes_tau,
                         const char* output, const Shape& shape, const Call& call) {
  return guarded([&] {
    const std::vector<PyObject*> values =
        items(arguments, static_cast<Py_ssize_t>(inputs.size()) + (takes_tau ? 3 : 2));
    // The most that any of these calls reads; those that are not given are NULL for the library.
    work_stream on;
    std::array<array, 3> given;
    std::size_t next = 0;
    for (const char* name : inputs) {
      given[next].take({op, name}, values[next], access::read, on);
      ++next;
    }
    // The filter, whose library makes the result and whose type it has.
    const array& r = given[0];
    const double tau = takes_tau ? to_tau(op, values[next++]) : 1;
    options o;
    o.take_threads(op, values[next++]);
    const maker m(values[0], r, on);
    result out;
    out.want({op, output}, values[next], m, shape(r), type_of(r));
    run(op, on, o.c, [&] { return call(r.tensor(), given[1].tensor(), given[2].tensor(), tau, out.tensor(), &o.c); });
    return out.to_python(m);
  });
}

using tensor = const aft_tensor*;

}  // namespace

PyObject* filter_entropy(PyObject*, PyObject* arguments) {
  return call_on_filter(
      "aft::filter_entropy", arguments, {"r"}, false, "out", shape_of_heads,
      [](tensor r, tensor, tensor, double, tensor out, const aft_options* o) { return aft_filter_entropy(r, out, o); });
}

PyObject* filter_entropy_backward(PyObject*, PyObject* arguments) {
  return call_on_filter("aft::filter_entropy_backward", arguments, {"r", "dout"}, false, "dr", shape_of,
                        [](tensor r, tensor dout, tensor, double, tensor dr, const aft_options* o) {
                          return aft_filter_entropy_backward(r, dout, dr, o);
                        });
}

PyObject* gumbel_filter(PyObject*, PyObject* arguments) {
  return call_on_filter("aft::gumbel_filter", arguments, {"r", "noise"}, true, "out", shape_of,
                        [](tensor r, tensor noise, tensor, double tau, tensor out, const aft_options* o) {
                          return aft_gumbel_filter(r, noise, tau, out, o);
                        });
}

PyObject* gumbel_filter_backward(PyObject*, PyObject* arguments) {
  return call_on_filter("aft::gumbel_filter_backward", arguments, {"r", "noise", "dout"}, true, "dr", shape_of,
                        [](tensor r, tensor noise, tensor dout, double tau, tensor dr, const aft_options* o) {
                          return aft_gumbel_filter_backward(r, noise, tau, dout, dr, o);
                        });
}

PyObject* gumbel_filter_hard(PyObject*, PyObject* arguments) {
  return call_on_filter("aft::gumbel_filter_hard", arguments, {"r"}, false, "out", shape_of,
                        [](tensor r, tensor, tensor, double, tensor out, const aft_options* o) {
                          return aft_gumbel_filter_hard(r, out, o);
                        });
}

}  // namespace aft::python
