// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <new>
#include <utility>

#include "dlpack.hpp"
#include "../device/gpu.hpp"

namespace aft::python {

namespace {

/// What libraries ask of memory that they take without a copy: a line of the cache, and the widest vectors.
constexpr std::align_val_t alignment{64};

/// Behind a pointer, since Python allocates the object and C++ constructs what it holds.
struct memory_object {
  PyObject_HEAD block* held;
};

PyTypeObject* memory_type = nullptr;

const block& held_by(PyObject* self) {
  return *reinterpret_cast<memory_object*>(self)->held;
}

/// What an exported tensor lives on: the struct of the standard first, its memory behind it.
template <class Managed>
struct exported {
  Managed managed{};
  block held;

  explicit exported(const block& from) : held(from) {
    managed.context = this;
    managed.deleter = [](Managed* self) { delete static_cast<exported*>(self->context); };
    managed.tensor = held.tensor();
  }
};

/// A capsule that nobody took its tensor out of still owns it.
template <class Managed>
void free_unused(PyObject* capsule) {
  const char* const unused = std::is_same_v<Managed, versioned_tensor> ? versioned_name : plain_name;
  // Whoever took it renamed the capsule, and frees it.
  if (!PyCapsule_IsValid(capsule, unused)) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, unused));
  managed->deleter(managed);
}

/// In the struct that the importer knows: the older one has no version and no flags.
template <class Managed>
object export_capsule(const block& held) {
  auto made = std::make_unique<exported<Managed>>(held);
  const char* unused = plain_name;
  if constexpr (std::is_same_v<Managed, versioned_tensor>) {
    made->managed.major = known_major;
    unused = versioned_name;
  }
  object capsule = object::owned(PyCapsule_New(&made->managed, unused, free_unused<Managed>));
  // The capsule has it from here on.
  made.release();
  return capsule;
}

PyObject* memory_dlpack(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* const names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  return guarded([&]() -> object {
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream,
                                     &version, &device, &copy)) {
      throw raised{};
    }
    // What cannot be done as asked is refused, as the standard wants it: the caller then asks otherwise or gives up.
    const block& held = held_by(self);
    // A GPU's is handed over by calls that are done: there is nothing that a stream would have to wait for.
    if (stream != Py_None && held.device.type == cpu_device) {
      raise(PyExc_BufferError, "memory of the host has no stream");
    }
    if (copy == Py_True) raise(PyExc_BufferError, "this memory is exported as it is, not as a copy");
    int major = 0, minor = 0, kind = held.device.type, number = held.device.id;
    const auto pair = [](PyObject* from, const char* format, int& first, int& second) {
      if (from == Py_None) return;
      const object both = object::owned(PySequence_Tuple(from));  // the format takes nothing else
      if (!PyArg_ParseTuple(both.get(), format, &first, &second)) throw raised{};
    };
    pair(version, "ii:max_version", major, minor);
    pair(device, "ii:dl_device", kind, number);
    if (kind != held.device.type || number != held.device.id) {
      raise(PyExc_BufferError, "memory of device (%d, %d) cannot be exported to device (%d, %d)",
            static_cast<int>(held.device.type), static_cast<int>(held.device.id), kind, number);
    }
    // Whoever names a version knows the newer struct.
    return major >= 1 ? export_capsule<versioned_tensor>(held) : export_capsule<managed_tensor>(held);
  });
}

PyObject* memory_dlpack_device(PyObject* self, PyObject*) {
  const auto [type, number] = held_by(self).device;
  return Py_BuildValue("(ii)", static_cast<int>(type), static_cast<int>(number));
}

/// For NumPy before 2, which imports what DLPack exports as read-only.
PyObject* memory_array_interface(PyObject* self, void*) {
  return guarded([&] {
    const block& held = held_by(self);
    // AttributeError: to whoever asks, the attribute is not there.
    if (held.device.type != cpu_device) raise(PyExc_AttributeError, "NumPy reads memory of the host alone");
    if (held.type.code == bfloat_code) raise(PyExc_AttributeError, "NumPy has no name for bfloat16");
    const char letter = held.type.code == uint_code ? 'u' : (held.type.code == int_code ? 'i' : 'f');
    object shape = object::owned(PyTuple_New(static_cast<Py_ssize_t>(held.shape.size())));
    for (std::size_t i = 0; i < held.shape.size(); ++i) {
      // PyTuple_SetItem takes the reference, whether it succeeds or not.
      PyTuple_SetItem(shape.get(), static_cast<Py_ssize_t>(i),
                      object::owned(PyLong_FromLongLong(held.shape[i])).release());
    }
    const object address = object::owned(PyLong_FromVoidPtr(held.bytes.get()));
    const object type = object::owned(PyUnicode_FromFormat("%c%c%d", '=', letter, held.type.bits / 8));
    return object::owned(Py_BuildValue("{s:i,s:O,s:O,s:(OO)}", "version", 3, "shape", shape.get(), "typestr",
                                       type.get(), "data", address.get(), Py_False));
  });
}

void free_memory(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<memory_object*>(self)->held;
  PyObject_Free(self);
  // Objects of types that were made from a spec hold their type.
  Py_DECREF(type);
}

/// object.__new__ would make one without memory.
PyObject* refuse_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError, "aft._core.Memory is made by calls that return arrays");
  return nullptr;
}

PyMethodDef methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(memory_dlpack)),
     METH_VARARGS | METH_KEYWORDS, "A DLPack capsule of the memory, which lives as long as the capsule's tensor."},
    {"__dlpack_device__", memory_dlpack_device, METH_NOARGS,
     "(1, 0) for memory of the host, (2, number) for that of a GPU."},
    {}};
PyGetSetDef members[] = {
    {"__array_interface__", memory_array_interface, nullptr, "The same for numpy.asarray.", nullptr}, {}};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_memory)},
                       {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, members},
                       {Py_tp_doc, const_cast<char*>("Row-major memory of this package, exported through DLPack.")},
                       {0, nullptr}};
PyType_Spec spec = {"aft._core.Memory", sizeof(memory_object), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

block::block(std::vector<std::int64_t> extents, decltype(aft_tensor::dtype) element, decltype(aft_tensor::device) at)
    : shape(std::move(extents)), strides(shape.size()), type(element), device(at) {
  std::int64_t count = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = count;
    // Extents are the caller's, and not yet checked by the library.
    if (__builtin_mul_overflow(count, shape[i], &count)) throw std::bad_alloc{};
  }
  std::int64_t size = 0;
  if (__builtin_mul_overflow(count, std::int64_t{element.bits / 8}, &size)) throw std::bad_alloc{};
  // Never NULL: importers take an address of nothing for an error.
  const auto count_of_bytes = static_cast<std::size_t>(size < 1 ? 1 : size);
  if (device.type == cpu_device) {
    bytes = {static_cast<std::byte*>(::operator new(count_of_bytes, alignment)),
             [](std::byte* memory) { ::operator delete(memory, alignment); }};
  } else {
    bytes = {gpu::allocate(device.id, count_of_bytes), gpu::release};
  }
}

aft_tensor block::tensor() const {
  return {bytes.get(), device, static_cast<std::int32_t>(shape.size()), type, shape.data(), strides.data(), 0};
}

void add_memory_type(PyObject* module) {
  object type = object::owned(PyType_FromSpec(&spec));
  memory_type = reinterpret_cast<PyTypeObject*>(object(type).release());
  if (PyModule_AddObject(module, "Memory", object(type).release()) != 0) throw raised{};
}

object make_memory(const block& held) {
  // A copy shares the bytes.
  auto own = std::make_unique<block>(held);
  auto* const made = PyObject_New(memory_object, memory_type);
  if (made == nullptr) throw raised{};
  made->held = own.release();
  return object::owned(reinterpret_cast<PyObject*>(made));
}

aft_tensor tensor_of(PyObject* memory) {
  return held_by(memory).tensor();
}

}  // namespace aft::python
