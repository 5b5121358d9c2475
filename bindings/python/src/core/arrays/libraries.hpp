// SPDX-License-Identifier: Apache-2.0
/// @file libraries.hpp  What is asked of NumPy and of the libraries that arrays come from. None is linked or required:
/// each is imported when a call first needs it.
#pragma once

#include <cstdint>
#include <optional>

#include "dlpack.hpp"
#include "work_stream.hpp"
#include "../python.hpp"

namespace aft::python {

/// Whether it is numpy.ndarray itself, not a subclass. Never imports NumPy: an array of its comes from an import.
bool is_numpy_array(PyObject* x);

/// numpy.empty: `type` has the code and bits of a float type; bfloat16 is that of ml_dtypes.
object numpy_empty(PyObject* shape, std::uint8_t code, std::uint8_t bits);

/// The functions by which the type of x exports through DLPack without a Python call, NULL where it shows none.
const exchange_functions* find_exchange(PyObject* x);

/// A capsule of x by its __dlpack__, which is told the number of a stream, or none.
object call_dlpack(PyObject* x, PyObject* stream);

/// Where x says that it is, none where it does not say it as the standard wants.
std::optional<device_type> device_of(PyObject* x);

/// The stream of a GPU that the library of x works on in this thread: by DLPack's functions in C, by
/// `cuda.current_stream` of its package, as PyTorch has it, or what its __cuda_array_interface__ says, as CuPy and
/// Numba have it. None where it says none.
std::optional<void*> current_stream(PyObject* x, device_type device);

/// The handle of a stream that libraries have as a number.
void* to_stream_handle(std::int64_t number);

/// Whether its library would record what is done with x for a gradient: then what is computed here would be lost to it.
bool is_recorded(PyObject* x);

/// The function from_dlpack of the library that x is of, or none: of its array namespace, else of the package that its
/// type, or a type which that extends, is defined in.
object find_from_dlpack(PyObject* x);

/// Whether it is of JAX, whose arrays are values: compiled programs may share one, so that none is written to. Not all
/// of its versions say so by DLPack's flag.
bool is_value(PyObject* x);

/// A new array of x's library on x's device, by its function `empty` (shape, dtype=, device=), which is looked for as
/// from_dlpack is; none where it has no such function, or no name for the type, and where arrays are
/// values.
object empty_beside(PyObject* x, PyObject* shape, std::uint8_t code, std::uint8_t bits);

}  // namespace aft::python
