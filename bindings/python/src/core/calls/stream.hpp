// SPDX-License-Identifier: Apache-2.0
/// @file stream.hpp  aft._core.Slots: what a stream is of, and the memory of its slots.
#pragma once

#include <aft/aft.h>

#include "../arrays/array.hpp"
#include "../python.hpp"

namespace aft::python {

/// Makes the type and adds it to the module.
void add_slots_type(PyObject* module);

/// The stream of an argument, an aft.Stream, which holds its Slots; None gives NULL. Raises TypeError where it is
/// neither. Slots on a GPU are in order on the call's stream then. `kept` holds the Slots for as long as the call
/// lasts.
const aft_stream* to_stream(const place& at, PyObject* from, work_stream& on, object& kept);

}  // namespace aft::python
