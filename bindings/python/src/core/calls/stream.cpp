// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <memory>

#include "call.hpp"
#include "../arrays/memory.hpp"

namespace aft::python {

namespace {

/// Memory of one's own is Memory, so that libraries may look at it; that of a caller is held as it was given.
struct slots {
  aft_stream_spec spec{};
  array given;        // the caller's state, or
  object from;        // (where that is on a GPU: the array it came as)
  object own;         // Memory, with its
  aft_tensor made{};  // description
  aft_stream stream{};
};

/// Behind a pointer, since Python allocates the object and C++ constructs what it holds.
struct slots_object {
  PyObject_HEAD slots* held;
};

/// Made with the module, and compared by address: what has another type is no stream of this extension.
PyTypeObject* slots_type = nullptr;

slots& slots_of(PyObject* self) {
  return *reinterpret_cast<slots_object*>(self)->held;
}

struct named_type {
  const char* text;
  std::uint8_t code, bits;
};
constexpr named_type types[] = {{"float32", float_code, 32},
                                {"float64", float_code, 64},
                                {"float16", float_code, 16},
                                {"bfloat16", bfloat_code, 16}};

/// By name, since dtypes of NumPy and PyTorch are of those, and neither may be there.
void set_type(aft_stream_spec& spec, PyObject* called) {
  for (const named_type& t : types) {
    if (!PyUnicode_Check(called) || PyUnicode_CompareWithASCIIString(called, t.text) != 0) continue;
    spec.dtype = {t.code, t.bits, 1};
    return;
  }
  raise(PyExc_ValueError,
        "aft::stream_spec: argument 'dtype': expected 'float32', 'float64', 'float16' or 'bfloat16', "
        "got %R",
        called);
}

/// As many threads as every call takes by itself.
aft_options any_threads() {
  options o;
  const object none = object::owned(PyLong_FromLong(0));
  o.take_threads("aft::stream", none.get());
  return o.c;
}

/// Slots on a GPU are an array of some library like any other, and every call moves them on its own stream.
void join(const slots& s, work_stream& on) {
  if (!s.from) return;
  const device_type device = s.given.tensor()->device;
  if (s.given.came_by() == protocol::capsule) {
    on.join_capsule(device);
  } else {
    on.join_unordered(s.from.get(), device);
  }
}

void adopt(slots& s, PyObject* state) {
  // For writing: calls move the slots, so that read-only memory is refused before the first of them.
  work_stream on;
  s.given.take({"aft::stream", "state"}, state, access::write, on);
  s.stream = {&s.spec, s.given.tensor()};
  if (s.given.given() && is_on_gpu(s.given.tensor()->device)) s.from = object::shared(state);
  // Asks whether the layout fits and touches no slot: there are no ids, wherever they are.
  extents none{0};
  const device_type device = s.from ? s.given.tensor()->device : device_type{cpu_device, 0};
  const aft_tensor ids{&none, device, 1, {int_code, 64, 1}, none.data(), nullptr, 0};
  aft_options o = any_threads();
  run("aft::stream", on, o, [&] { return aft_stream_copy(&s.stream, &ids, &ids, &o); });
}

void allocate(slots& s, std::int64_t count, std::int64_t bytes) {
  // Bytes, a row for each slot: what a slot holds is the library's affair, and may be saved as it is.
  const block memory({count, bytes}, {uint_code, 8, 1});
  s.own = make_memory(memory);
  s.made = tensor_of(s.own.get());
  s.stream = {&s.spec, &s.made};
  const aft_options o = any_threads();
  check(aft_stream_reset(&s.stream, -1, &o));
}

PyObject* new_slots(PyTypeObject*, PyObject* arguments, PyObject*) {
  return guarded([&] {
    constexpr const char* op = "aft::stream_spec";
    constexpr const char* numbers[] = {"d", "hk", "before", "after", "taps", "capacity", "slots"};
    const std::vector<PyObject*> values = items(arguments, 10);  // op, dtype, those, state
    // Each checked under its name: the library would say which number is wrong only by what follows from it.
    std::int64_t of[7];
    for (std::size_t i = 0; i < 7; ++i) of[i] = to_int64({op, numbers[i]}, values[i + 2]);
    const std::int64_t count = of[6];
    PyObject* const state = values[9];
    auto own = std::make_unique<slots>();
    own->spec.op = static_cast<std::int32_t>(to_int64({op, "op"}, values[0]));
    set_type(own->spec, values[1]);
    own->spec.d = of[0];
    own->spec.hk = of[1];
    own->spec.before = of[2];
    own->spec.after = of[3];
    own->spec.taps = of[4];
    own->spec.capacity = of[5];
    std::int64_t bytes = 0;
    // Judges the whole spec, so that what comes after may rely on it.
    check(aft_stream_bytes(&own->spec, &bytes));
    // The library is never told: it sees rows of a state.
    if (count < 0) {
      raise(PyExc_ValueError, "%s: argument 'slots': expected 0 or more, got %lld", op, static_cast<long long>(count));
    }
    if (state == Py_None) {
      allocate(*own, count, bytes);
    } else {
      adopt(*own, state);
    }
    // Last, for from here on nothing fails that would leave an object without slots.
    auto* const made = PyObject_New(slots_object, slots_type);
    if (made == nullptr) throw raised{};
    made->held = own.release();
    return object::owned(reinterpret_cast<PyObject*>(made));
  });
}

PyObject* reset_slots(PyObject* self, PyObject* slot) {
  return guarded([&] {
    const std::int64_t number = to_int64({"aft::reset", "slot"}, slot);
    aft_options o = any_threads();
    work_stream on;
    join(slots_of(self), on);
    // A state may be gigabytes.
    run("aft::reset", on, o, [&] { return aft_stream_reset(&slots_of(self).stream, number, &o); });
    return object::shared(Py_None);
  });
}

PyObject* copy_slots(PyObject* self, PyObject* arguments) {
  return guarded([&] {
    const std::vector<PyObject*> values = items(arguments, 2);
    work_stream on;
    join(slots_of(self), on);
    array from, to;
    from.take_integers({"aft::copy", "from"}, values[0], on);
    to.take_integers({"aft::copy", "to"}, values[1], on);
    aft_options o = any_threads();
    run("aft::copy", on, o, [&] { return aft_stream_copy(&slots_of(self).stream, from.tensor(), to.tensor(), &o); });
    return object::shared(Py_None);
  });
}

PyObject* position_of_slot(PyObject* self, PyObject* slot) {
  return guarded([&] {
    std::int64_t position = 0;
    const std::int64_t number = to_int64({"aft::position", "slot"}, slot);
    aft_options o = any_threads();
    work_stream on;
    join(slots_of(self), on);
    // Where the slots are on a GPU this waits for its stream.
    run("aft::position", on, o, [&] { return aft_stream_position(&slots_of(self).stream, number, &position, &o); });
    return object::owned(PyLong_FromLongLong(position));
  });
}

/// For `Stream.state`, which is NumPy's view of it, or the caller's own array.
PyObject* memory_of_slots(PyObject* self, void*) {
  return guarded([&] { return slots_of(self).own ? slots_of(self).own : object::shared(Py_None); });
}

PyObject* count_of_slots(PyObject* self, void*) {
  return PyLong_FromLongLong(slots_of(self).stream.state->shape[0]);
}

void free_slots(PyObject* self) {
  // The type outlives its last object by this reference.
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<slots_object*>(self)->held;
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {{"reset", reset_slots, METH_O, "Makes a slot empty; -1: all."},
                         {"copy", copy_slots, METH_VARARGS, "Copies slots to others."},
                         {"position", position_of_slot, METH_O, "How many positions a slot has seen."},
                         {}};
PyGetSetDef members[] = {{"memory", memory_of_slots, nullptr, "The Memory that was made, or None.", nullptr},
                         {"count", count_of_slots, nullptr, "How many slots there are.", nullptr},
                         {}};
PyType_Slot type_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_slots)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(free_slots)},
                            {Py_tp_methods, methods},
                            {Py_tp_getset, members},
                            {Py_tp_doc, const_cast<char*>("What a stream is of, and the memory of its slots.")},
                            {0, nullptr}};
PyType_Spec type_spec = {"aft._core.Slots", sizeof(slots_object), 0, Py_TPFLAGS_DEFAULT, type_slots};

}  // namespace

void add_slots_type(PyObject* module) {
  object type = object::owned(PyType_FromSpec(&type_spec));
  slots_type = reinterpret_cast<PyTypeObject*>(object(type).release());
  if (PyModule_AddObject(module, "Slots", object(type).release()) != 0) throw raised{};
}

const aft_stream* to_stream(const place& at, PyObject* from, work_stream& on, object& kept) {
  // By an attribute and not by its class, which Python code may derive from.
  static name slots_name("_slots");
  if (from == Py_None) return nullptr;
  kept = object::owned_or_absent(PyObject_GetAttr(from, slots_name.get()));
  if (!kept || Py_TYPE(kept.get()) != slots_type) {
    raise(PyExc_TypeError, "%s: argument '%s': expected an aft.Stream, got %R", at.op, at.argument, from);
  }
  join(slots_of(kept.get()), on);
  return &slots_of(kept.get()).stream;
}

}  // namespace aft::python
