// SPDX-License-Identifier: Apache-2.0
#include "libraries.hpp"

#include "array.hpp"

namespace aft::python {

namespace {

name namespace_name("__array_namespace__"), from_dlpack_name("from_dlpack"), module_name("__module__"),
    mro_name("__mro__"), exchange_attribute("__dlpack_c_exchange_api__"), requires_grad_name("requires_grad"),
    is_grad_enabled_name("is_grad_enabled"), empty_name("empty"), device_name("device"), dlpack_name("__dlpack__"),
    dlpack_device_name("__dlpack_device__"), cuda_name("cuda"), current_stream_name("current_stream"),
    cuda_stream_name("cuda_stream"), cuda_interface_name("__cuda_array_interface__");

/// A module or an attribute of one, looked up at first use and kept.
PyObject* kept(PyObject*& slot, const char* module, const char* attribute) {
  if (slot == nullptr) {
    const object from = object::owned(PyImport_ImportModule(module));
    slot = object::owned(PyObject_GetAttrString(from.get(), attribute)).release();
  }
  return slot;
}

/// NumPy's name of a type. It has none for bfloat16, which is that of the module that inputs of that type come from.
PyObject* numpy_type(std::uint8_t code, std::uint8_t bits) {
  static PyObject *half, *single, *full, *brain;
  if (code == bfloat_code) {
    if (brain == nullptr) {
      PyObject* scalar = nullptr;
      PyObject* to_type = nullptr;
      const object element = object::shared(kept(scalar, "ml_dtypes", "bfloat16"));
      const object maker = object::shared(kept(to_type, "numpy", "dtype"));
      brain = object::owned(PyObject_CallFunctionObjArgs(maker.get(), element.get(), nullptr)).release();
    }
    return brain;
  }
  // A slot for each, as kept() looks a name up once.
  return bits == 64 ? kept(full, "numpy", "float64")
                    : (bits == 32 ? kept(single, "numpy", "float32") : kept(half, "numpy", "float16"));
}

/// The package of a type: "torch" of torch.nn.parameter.Parameter.
object package_of(PyObject* type) {
  const object module = object::owned_or_absent(PyObject_GetAttr(type, module_name.get()));
  if (!module || !PyUnicode_Check(module.get())) return {};
  const Py_ssize_t dot = PyUnicode_FindChar(module.get(), '.', 0, PyUnicode_GetLength(module.get()), 1);
  if (dot < -1) throw raised{};
  const object package = dot < 0 ? module : object::owned(PyUnicode_Substring(module.get(), 0, dot));
  // Its module is imported, as there is an object of it; what is not there any more is no answer.
  PyObject* found = PyImport_GetModule(package.get());
  if (found == nullptr && PyErr_Occurred() != nullptr) throw raised{};
  return found == nullptr ? object{} : object::owned(found);
}

/// What the types of x say, the nearest first: the first answer of `ask`.
template <class Ask>
object ask_packages(PyObject* x, Ask ask) {
  const object types = object::owned(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(x)), mro_name.get()));
  for (Py_ssize_t i = 0; i < PyTuple_Size(types.get()); ++i) {
    const object package = package_of(PyTuple_GetItem(types.get(), i));
    if (!package) continue;
    if (object found = ask(package.get())) return found;
  }
  return {};
}

/// The array namespace of x, else one of its packages, that has this function; none where none has.
object find_library(PyObject* x, PyObject* function) {
  if (const object method = object::owned_or_absent(PyObject_GetAttr(x, namespace_name.get()))) {
    object space = object::owned(PyObject_CallObject(method.get(), nullptr));
    if (object::owned_or_absent(PyObject_GetAttr(space.get(), function))) return space;
  }
  return ask_packages(x, [&](PyObject* package) {
    const bool found = static_cast<bool>(object::owned_or_absent(PyObject_GetAttr(package, function)));
    return found ? object::shared(package) : object{};
  });
}

/// The name of a type of floats in the array API, which libraries from before it have as well.
const char* standard_type(std::uint8_t code, std::uint8_t bits) {
  if (code == bfloat_code) return "bfloat16";
  return bits == 64 ? "float64" : (bits == 32 ? "float32" : "float16");
}

}  // namespace

bool is_value(PyObject* x) {
  const object package = package_of(reinterpret_cast<PyObject*>(Py_TYPE(x)));
  if (!package) return false;
  const object called = object::owned_or_absent(PyObject_GetAttrString(package.get(), "__name__"));
  if (!called || !PyUnicode_Check(called.get())) return false;
  return PyUnicode_CompareWithASCIIString(called.get(), "jax") == 0 ||
         PyUnicode_CompareWithASCIIString(called.get(), "jaxlib") == 0;
}

bool is_numpy_array(PyObject* x) {
  // Kept for good once it is found: NumPy cannot be imported twice.
  static PyTypeObject* ndarray = nullptr;
  if (ndarray == nullptr) {
    const object key = object::owned(PyUnicode_FromString("numpy"));
    PyObject* const module = PyImport_GetModule(key.get());
    if (module == nullptr) {
      if (PyErr_Occurred() != nullptr) throw raised{};
      return false;
    }
    const object numpy = object::owned(module);
    // A thread may be importing it just now.
    object type = object::owned_or_absent(PyObject_GetAttrString(numpy.get(), "ndarray"));
    if (!type) return false;
    ndarray = reinterpret_cast<PyTypeObject*>(type.release());
  }
  return Py_TYPE(x) == ndarray;
}

object numpy_empty(PyObject* shape, std::uint8_t code, std::uint8_t bits) {
  static PyObject* empty;
  return object::owned(
      PyObject_CallFunctionObjArgs(kept(empty, "numpy", "empty"), shape, numpy_type(code, bits), nullptr));
}

object find_from_dlpack(PyObject* x) {
  const object library = find_library(x, from_dlpack_name.get());
  return library ? object::owned(PyObject_GetAttr(library.get(), from_dlpack_name.get())) : object{};
}

object empty_beside(PyObject* x, PyObject* shape, std::uint8_t code, std::uint8_t bits) {
  if (is_value(x)) return {};
  const object library = find_library(x, empty_name.get());
  if (!library) return {};
  const object type = object::owned_or_absent(PyObject_GetAttrString(library.get(), standard_type(code, bits)));
  const object device = object::owned_or_absent(PyObject_GetAttr(x, device_name.get()));
  // A library without the type or without devices cannot say where its array is to be.
  if (!type || !device) return {};
  const object empty = object::owned(PyObject_GetAttr(library.get(), empty_name.get()));
  const object arguments = object::owned(PyTuple_Pack(1, shape));
  const object there = object::owned(Py_BuildValue("{s:O,s:O}", "dtype", type.get(), "device", device.get()));
  if (PyObject* made = PyObject_Call(empty.get(), arguments.get(), there.get())) return object::owned(made);
  // Functions from before the array API know no device: theirs is the current one, and the library compares devices.
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw raised{};
  PyErr_Clear();
  const object here = object::owned(Py_BuildValue("{s:O}", "dtype", type.get()));
  return object::owned(PyObject_Call(empty.get(), arguments.get(), here.get()));
}

const exchange_functions* find_exchange(PyObject* x) {
  // Most arrays of a program are of one type, which is held so that its address stays its own.
  static PyTypeObject* last_type = nullptr;
  static const exchange_functions* last = nullptr;
  PyTypeObject* const type = Py_TYPE(x);
  if (type == last_type) return last;
  // The attribute is the type's, so that what an object has under that name does not count.
  const exchange_functions* found = nullptr;
  const object capsule =
      object::owned_or_absent(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), exchange_attribute.get()));
  if (capsule && PyCapsule_IsValid(capsule.get(), exchange_name)) {
    found = static_cast<const exchange_functions*>(PyCapsule_GetPointer(capsule.get(), exchange_name));
    if (found->major != known_major || found->to_managed == nullptr) found = nullptr;
  }
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(last_type, type)));
  last = found;
  return found;
}

object call_dlpack(PyObject* x, PyObject* stream) {
  // The standard wants max_version named by whoever knows it; without it exporters give the older struct. Arguments
  // without a stream are the same for every array and made once.
  static PyObject *keywords, *nothing;
  if (keywords == nullptr) keywords = object::owned(Py_BuildValue("{s:(ii)}", "max_version", 1, 0)).release();
  if (nothing == nullptr) nothing = object::owned(PyTuple_New(0)).release();
  const object method = object::owned(PyObject_GetAttr(x, dlpack_name.get()));
  const object told = stream == nullptr
                          ? object::shared(keywords)
                          : object::owned(Py_BuildValue("{s:(ii),s:O}", "max_version", 1, 0, "stream", stream));
  if (PyObject* capsule = PyObject_Call(method.get(), nothing, told.get())) return object::owned(capsule);
  // Exporters from before DLPack 1 do not know the keyword.
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw raised{};
  PyErr_Clear();
  if (stream == nullptr) return object::owned(PyObject_CallObject(method.get(), nullptr));
  const object older = object::owned(Py_BuildValue("{s:O}", "stream", stream));
  return object::owned(PyObject_Call(method.get(), nothing, older.get()));
}

std::optional<device_type> device_of(PyObject* x) {
  const object method = object::owned_or_absent(PyObject_GetAttr(x, dlpack_device_name.get()));
  if (!method) return {};
  const object said = object::owned(PyObject_CallObject(method.get(), nullptr));
  // Two numbers, the first of which may be an enumerator.
  const object pair = object::owned(PySequence_Tuple(said.get()));
  if (PyTuple_Size(pair.get()) != 2) raise(PyExc_TypeError, "__dlpack_device__ gave %R, which is no pair", said.get());
  const auto item = [&](Py_ssize_t i) {
    return static_cast<std::int32_t>(to_int64({"aft", "__dlpack_device__"}, PyTuple_GetItem(pair.get(), i)));
  };
  return device_type{item(0), item(1)};
}

void* to_stream_handle(std::int64_t number) {
  // 1 is the legacy default stream, which is CUDA's null handle too: so that two names of one stream compare equal.
  return number == 1 ? nullptr : reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

std::optional<void*> current_stream(PyObject* x, device_type device) {
  if (const exchange_functions* const exchange = find_exchange(x); exchange != nullptr && exchange->current_stream) {
    void* stream = nullptr;
    if (exchange->current_stream(device.type, device.id, &stream) != 0) throw raised{};
    return to_stream_handle(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream)));
  }
  const object asked = ask_packages(x, [](PyObject* package) {
    const object cuda = object::owned_or_absent(PyObject_GetAttr(package, cuda_name.get()));
    return cuda ? object::owned_or_absent(PyObject_GetAttr(cuda.get(), current_stream_name.get())) : object{};
  });
  if (asked) {
    const object where = object::owned(PyObject_GetAttr(x, device_name.get()));
    const object stream = object::owned(PyObject_CallFunctionObjArgs(asked.get(), where.get(), nullptr));
    if (const object handle = object::owned_or_absent(PyObject_GetAttr(stream.get(), cuda_stream_name.get()))) {
      return to_stream_handle(to_int64({"aft", "cuda_stream"}, handle.get()));
    }
  }
  const object interface = object::owned_or_absent(PyObject_GetAttr(x, cuda_interface_name.get()));
  if (!interface || !PyDict_Check(interface.get())) return {};
  // Version 3 has the member. None says that nothing has to be waited for, and names no stream.
  PyObject* const number = PyDict_GetItemString(interface.get(), "stream");
  if (number == nullptr || number == Py_None) return {};
  return to_stream_handle(to_int64({"aft", "stream"}, number));
}

bool is_recorded(PyObject* x) {
  const object asked = object::owned_or_absent(PyObject_GetAttr(x, requires_grad_name.get()));
  // An array of flags under that name, or none, is no tensor that records.
  if (!asked || asked.get() != Py_True) return false;
  const object enabled = ask_packages(x, [](PyObject* package) {
    return object::owned_or_absent(PyObject_GetAttr(package, is_grad_enabled_name.get()));
  });
  // A library that cannot be asked may be recording.
  if (!enabled) return true;
  return object::owned(PyObject_CallObject(enabled.get(), nullptr)).get() == Py_True;
}

}  // namespace aft::python
