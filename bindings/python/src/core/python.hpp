// SPDX-License-Identifier: Apache-2.0
/// @file python.hpp  Python's C API behind owned references and one exception.
///
/// Py_LIMITED_API comes from the build: with it one binary serves every Python from 3.9 on.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <new>
#include <utility>

namespace aft::python {

/// Thrown where Python's error indicator is set already.
struct raised {};

/// A strong reference, or none.
class object {
 public:
  object() = default;
  object(object&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  object(const object& other) noexcept : pointer_(other.pointer_) { Py_XINCREF(pointer_); }
  object& operator=(object other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~object() { Py_XDECREF(pointer_); }

  /// What a function of the C API returned: a new reference, or an error.
  static object owned(PyObject* pointer) {
    if (pointer == nullptr) throw raised{};
    return object(pointer);
  }
  /// The same, where an attribute that is not there is an answer. Other errors stay errors.
  static object owned_or_absent(PyObject* pointer) {
    if (pointer != nullptr) return object(pointer);
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw raised{};
    PyErr_Clear();
    return {};
  }
  static object shared(PyObject* pointer) {
    Py_XINCREF(pointer);
    return object(pointer);
  }

  PyObject* get() const { return pointer_; }
  PyObject* release() { return std::exchange(pointer_, nullptr); }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  explicit object(PyObject* pointer) : pointer_(pointer) {}
  PyObject* pointer_ = nullptr;
};

/// Puts an error aside while it lives: what other people's code does, it does without one.
class error_aside {
 public:
  error_aside() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~error_aside() { PyErr_Restore(type_, value_, trace_); }
  error_aside(const error_aside&) = delete;
  error_aside& operator=(const error_aside&) = delete;

 private:
  PyObject *type_, *value_, *trace_;
};

/// Sets an error with a text as of PyErr_Format, and throws.
template <class... Values>
[[noreturn]] void raise(PyObject* type, const char* format, Values... values) {
  PyErr_Format(type, format, values...);
  throw raised{};
}

/// A name that is looked up often, made once and kept as long as the process lives.
class name {
 public:
  constexpr explicit name(const char* text) : text_(text) {}
  PyObject* get() {
    if (pointer_ == nullptr) pointer_ = object::owned(PyUnicode_InternFromString(text_)).release();
    return pointer_;
  }

 private:
  const char* text_;
  PyObject* pointer_ = nullptr;
};

/// Runs what a Python function does, and turns exceptions of C++ into Python's.
template <class Function>
PyObject* guarded(Function function) noexcept {
  try {
    return function().release();
  } catch (const raised&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_SystemError, e.what());
    return nullptr;
  }
}

}  // namespace aft::python
