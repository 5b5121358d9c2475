// SPDX-License-Identifier: Apache-2.0
/// @file libraries.hpp  What is asked of NumPy and of the libraries that arrays come from. None is linked or required:
/// each is imported when a call first needs it.
#pragma once

#include <cstdint>

#include "dlpack.hpp"
#include "../python.hpp"

namespace aft::python {

/// Whether it is numpy.ndarray itself, not a subclass. Never imports NumPy: an array of its comes from an import.
bool is_numpy_array(PyObject* x);

/// numpy.empty: `type` has the code and bits of a float type; bfloat16 is that of ml_dtypes.
object numpy_empty(PyObject* shape, std::uint8_t code, std::uint8_t bits);

/// The functions by which the type of x exports through DLPack without a Python call, NULL where it shows none.
const exchange_functions* find_exchange(PyObject* x);

/// Whether its library would record what is done with x for a gradient: then what is computed here would be lost to it.
bool is_recorded(PyObject* x);

/// The function from_dlpack of the library that x is of, or none: of its array namespace, else of the package that its
/// type, or a type which that extends, is defined in.
object find_from_dlpack(PyObject* x);

/// A new array of x's library on x's device, by its function `empty` (shape, dtype=, device=), which is looked for as
/// from_dlpack is; none where it has no such function, or no name for the type. JAX's are none either: what it gives
/// out is not written to.
object empty_beside(PyObject* x, PyObject* shape, std::uint8_t code, std::uint8_t bits);

}  // namespace aft::python
