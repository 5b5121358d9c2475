// SPDX-License-Identifier: Apache-2.0
/// @file module.cpp  aft._core: what the Python code of the package calls. Arguments are positional, all of them given.
///
/// The module is of one interpreter: what it has looked up once it keeps in variables of its own.
#include <aft/aft.hpp>

#include "calls/call.hpp"
#include "arrays/memory.hpp"
#include "calls/stream.hpp"

namespace aft::python {

namespace {

PyObject* isa_name(PyObject*, PyObject*) {
  return PyUnicode_FromString(aft_isa());
}

PyObject* build_line(PyObject*, PyObject*) {
  return PyUnicode_FromString(aft::build_info());
}

/// Registered with os.register_at_fork by the package: C code is not told by Python.
PyObject* after_fork(PyObject*, PyObject*) {
  is_forked = true;
  return object::shared(Py_None).release();
}

PyMethodDef functions[] = {
    {"forward", forward, METH_VARARGS,
     "op, q, k, v, bias or filter, window, causal, gate, outside, arithmetic, mask, key_lengths, query_lengths, "
     "first_query, query_offsets, key_offsets, slots, slot_ids, threads, y, lse, average. An output is None (not "
     "wanted), "
     "True (a new array) or an array that is written. Returns y, or a tuple of those that are wanted."},
    {"backward", backward, METH_VARARGS,
     "As forward up to threads, then dy, lse, average, dq, dk, dv, dbias or dfilter. Returns the gradients, None where "
     "one is not wanted."},
    {"reparameterize", reparameterize, METH_VARARGS, "r, gain, shift, threads, out."},
    {"reparameterize_backward", reparameterize_backward, METH_VARARGS,
     "r, gain, shift, dout, threads, dr, dgain, dshift."},
    {"filter_entropy", filter_entropy, METH_VARARGS, "r, threads, out."},
    {"filter_entropy_backward", filter_entropy_backward, METH_VARARGS, "r, dout, threads, dr."},
    {"gumbel_filter", gumbel_filter, METH_VARARGS, "r, noise, tau, threads, out."},
    {"gumbel_filter_backward", gumbel_filter_backward, METH_VARARGS, "r, noise, tau, dout, threads, dr."},
    {"gumbel_filter_hard", gumbel_filter_hard, METH_VARARGS, "r, threads, out."},
    {"attention_map", attention_map, METH_VARARGS, "k, bias, channels, the options of forward, out."},
    {"after_fork", after_fork, METH_NOARGS, "Told in a forked process, which computes on one thread from then on."},
    {"isa", isa_name, METH_NOARGS, "The level of instructions whose kernels run."},
    {"build_info", build_line, METH_NOARGS, "One line about how they were compiled."},
    {}};

void add(PyObject* module, const char* called, object value) {
  if (PyModule_AddObject(module, called, value.get()) != 0) throw raised{};
  // A reference that is the module's now.
  value.release();
}

/// Of the library that is linked, which may be newer than the package's own files.
object version_text() {
  const int version = aft_version();
  return object::owned(PyUnicode_FromFormat("%d.%d.%d", version / 10000, version / 100 % 100, version % 100));
}

/// Types and names that were looked up are of the interpreter that has imported the module first. Another one, whose
/// classes differ, would be told that its own aft.SparseFilter is no filter.
void claim_for_this_interpreter() {
  static std::int64_t owner = -1;
  const std::int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
  if (here < 0) throw raised{};
  if (owner >= 0 && owner != here) {
    raise(PyExc_ImportError, "aft has been imported by another interpreter of this process, and serves one alone");
  }
  owner = here;
}

/// Whoever throws modules away and imports them again gets the types there are, which objects of theirs have.
void fill_anew(PyObject* module, PyObject* first) {
  for (const char* called : {"version", "DeviceError", "Memory", "Slots"}) {
    add(module, called, object::owned(PyObject_GetAttrString(first, called)));
  }
}

void fill_first(PyObject* module) {
  add(module, "version", version_text());
  // A RuntimeError, as other libraries raise for a device, yet one that can be caught by itself.
  device_error =
      object::owned(PyErr_NewExceptionWithDoc(
                        "aft.DeviceError",
                        "An array lies on a device that this build has no kernels for, or the device failed.",
                        PyExc_RuntimeError, nullptr))
          .release();
  add(module, "DeviceError", object::shared(device_error));
  add_memory_type(module);
  add_slots_type(module);
}

/// Returns 0, or -1 with an error set, as a module's slot does.
int fill(PyObject* module) {
  static PyObject* first = nullptr;
  PyObject* const done = guarded([module] {
    claim_for_this_interpreter();
    if (first != nullptr) {
      fill_anew(module, first);
    } else {
      fill_first(module);
      first = object::shared(module).release();
    }
    return object::shared(Py_None);
  });
  Py_XDECREF(done);
  return done == nullptr ? -1 : 0;
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {}};

// Initialised in phases, so that every import asks: of a module made at once Python hands copies to other interpreters.
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "aft._core",
                          "The operators of aft on arrays of any library; the package aft documents them.",
                          0,
                          functions,
                          slots,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace aft::python

PyMODINIT_FUNC PyInit__core() {
  return PyModuleDef_Init(&aft::python::definition);
}
