// SPDX-License-Identifier: Apache-2.0
#include "bias.hpp"

namespace aft::python {

namespace {

/// A class of the package, looked up once: a borrowed reference that the slot keeps for good.
/// The package is imported whenever this runs, since nobody else has these classes.
PyObject* kept_class(PyObject*& slot, const char* called) {
  if (slot == nullptr) {
    const object module = object::owned(PyImport_ImportModule("aft._arguments"));
    slot = object::owned(PyObject_GetAttrString(module.get(), called)).release();
  }
  return slot;
}

/// isinstance, so that a caller may derive a kind of bias from ours.
bool is_of(PyObject* x, PyObject* type) {
  const int answer = PyObject_IsInstance(x, type);
  if (answer < 0) throw raised{};
  return answer != 0;
}

int32_t kind_of(PyObject* from) {
  // Both are tuples, and arrays are not: most calls end here.
  if (!PyTuple_Check(from)) return AFT_DENSE;
  if (is_of(from, bias_classes::factorized())) return AFT_FACTORIZED;
  if (is_of(from, bias_classes::banded())) return AFT_BANDED;
  return AFT_DENSE;
}

/// A member of a bias that is written. True, which stands for a new array elsewhere, would be made and lost here: who
/// gives a bias has it handed back as it is.
PyObject* place_in(const place& at, PyObject* bias, Py_ssize_t i) {
  PyObject* const found = PyTuple_GetItem(bias, i);
  if (found == nullptr) throw raised{};
  if (found == Py_True) {
    raise(PyExc_TypeError, "%s: argument '%s': expected an array of NumPy's, or one with __dlpack__, got bool", at.op,
          at.argument);
  }
  return found;
}

/// A member of a bias, which keeps it alive.
PyObject* member(PyObject* bias, Py_ssize_t i) {
  // Fails for a tuple that was made shorter than its class says.
  PyObject* const found = PyTuple_GetItem(bias, i);
  if (found == nullptr) throw raised{};
  return found;
}

}  // namespace

PyObject* bias_classes::factorized() {
  static PyObject* slot;
  return kept_class(slot, "Factorized");
}

PyObject* bias_classes::banded() {
  static PyObject* slot;
  return kept_class(slot, "Banded");
}

PyObject* bias_classes::sparse_filter() {
  static PyObject* slot;
  return kept_class(slot, "SparseFilter");
}

void filter_argument::take(const char* op, PyObject* from, work_stream& on) {
  if (PyTuple_Check(from) && is_of(from, bias_classes::sparse_filter())) {
    // The gradient of values is handed back in a filter of these same taps.
    given_taps_ = member(from, 0);
    if (given_taps_ == Py_None) {
      raise(PyExc_ValueError, "%s: argument 'filter.taps': expected an array of int32 or int64, got None", op);
    }
    taps_.take({op, "filter.taps"}, given_taps_, access::read, on);
    values_.take({op, "filter.values"}, member(from, 1), access::read, on);
  } else {
    values_.take({op, "filter"}, from, access::read, on);
  }
}

void filter_result::want(const char* op, PyObject* wanted, const maker& m, const filter_argument& of) {
  // A sparse filter that is made anew has the taps of the one that was given; only its values are computed.
  taps_ = of.is_sparse() && wanted != Py_None ? of.given_taps() : nullptr;
  PyObject* values = wanted;
  if (PyTuple_Check(wanted) && is_of(wanted, bias_classes::sparse_filter())) {
    if (!of.is_sparse()) {
      raise(PyExc_ValueError, "%s: argument 'dfilter': expected an array as 'filter' is one, got an aft.SparseFilter",
            op);
    }
    // Handed back as it came, with whatever its owner derived from the class.
    given_ = object::shared(wanted);
    values = place_in({op, "dfilter"}, wanted, 1);
  }
  const array& like = of.values();
  values_.want({op, "dfilter"}, values, m, shape_of(like), type_of(like));
}

object filter_result::to_python(const maker& m) const {
  if (given_) return given_;
  const object values = values_.to_python(m);
  if (taps_ == nullptr) return values;
  return object::owned(PyObject_CallFunctionObjArgs(bias_classes::sparse_filter(), taps_, values.get(), nullptr));
}

void bias_argument::take(const char* op, PyObject* from, work_stream& on) {
  bias_.kind = kind_of(from);
  if (bias_.kind == AFT_FACTORIZED) {
    u_.take({op, "bias.u"}, member(from, 0), access::read, on);
    v_.take({op, "bias.v"}, member(from, 1), access::read, on);
  } else {
    w_.take({op, "bias"}, bias_.kind == AFT_BANDED ? member(from, 0) : from, access::read, on);
  }
  // Tensors point into the arrays beside them; those that the kind does not have are NULL.
  bias_.w = w_.tensor();
  bias_.u = u_.tensor();
  bias_.v = v_.tensor();
}

std::int64_t bias_argument::rows() const {
  // Dense, factor and band alike have rows as their last axis but one.
  const array& a = bias_.kind == AFT_FACTORIZED ? u_ : w_;
  return a.given() && a.axes() >= 2 ? a.extent(-2) : -1;
}

void bias_result::want(const char* op, PyObject* wanted, const maker& m, const bias_argument& of) {
  if (wanted == Py_None) return;
  wanted_ = true;
  bias_.kind = of.bias()->kind;
  // True stands for each of the arrays that the kind has.
  PyObject *w = wanted, *u = wanted, *v = wanted;
  if (wanted != Py_True) {
    given_ = object::shared(wanted);
    // Of its own kind, not of the bias's: that they agree is the library's to check.
    bias_.kind = kind_of(wanted);
    if (bias_.kind == AFT_FACTORIZED) {
      u = place_in({op, "dbias.u"}, wanted, 0);
      v = place_in({op, "dbias.v"}, wanted, 1);
    } else if (bias_.kind == AFT_BANDED) {
      w = place_in({op, "dbias"}, wanted, 0);
    }
  }
  if (bias_.kind == AFT_FACTORIZED) {
    u_.want({op, "dbias.u"}, u, m, shape_of(of.u()), type_of(of.u()));
    v_.want({op, "dbias.v"}, v, m, shape_of(of.v()), type_of(of.v()));
  } else {
    w_.want({op, "dbias"}, w, m, shape_of(of.w()), type_of(of.w()));
  }
  bias_.w = w_.tensor();
  bias_.u = u_.tensor();
  bias_.v = v_.tensor();
}

object bias_result::to_python(const maker& m) const {
  if (!wanted_) return object::shared(Py_None);
  if (given_) return given_;
  if (bias_.kind == AFT_DENSE) return w_.to_python(m);
  if (bias_.kind == AFT_BANDED) {
    const object w = w_.to_python(m);
    return object::owned(PyObject_CallFunctionObjArgs(bias_classes::banded(), w.get(), nullptr));
  }
  // Both before the class is called: neither may be lost where the other fails.
  const object u = u_.to_python(m), v = v_.to_python(m);
  return object::owned(PyObject_CallFunctionObjArgs(bias_classes::factorized(), u.get(), v.get(), nullptr));
}

}  // namespace aft::python
