// SPDX-License-Identifier: Apache-2.0
#include "array.hpp"

#include "libraries.hpp"
#include "../device/gpu.hpp"

namespace aft::python {

namespace {

name array_struct_name("__array_struct__"), dlpack_name("__dlpack__"), type_name("__name__"), dtype_name("dtype");

/// What NumPy's __array_struct__ holds (https://numpy.org/doc/stable/reference/arrays.interface.html).
struct array_interface {
  int two;
  int axes;
  char kind;
  int itemsize;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;  // in bytes
  void* data;
  PyObject* description;
};
constexpr int native_order_flag = 0x200, writeable_flag = 0x400;
// Extents are read where they lie: Py_ssize_t and int64_t are one type, or two of the same kind of integer.
static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t), "extents of the C interface have 64 bits");

/// The DLPack type of an element, from the letters of the array interface; false where it has none.
bool to_type(char kind, int itemsize, aft_tensor& tensor) {
  std::uint8_t code = 0;
  switch (kind) {
    case 'f': code = float_code; break;
    case 'i': code = int_code; break;
    case 'u': code = uint_code; break;
    case 'b': code = bool_code; break;
    case 'c': code = complex_code; break;
    default: return false;
  }
  tensor.dtype = {code, static_cast<std::uint8_t>(itemsize * 8), 1};
  return true;
}

/// NumPy knows no bfloat16: ml_dtypes and others add it as a type of two opaque bytes, and only the name tells.
void to_added_type(const place& at, PyObject* from, int itemsize, aft_tensor& tensor) {
  const object dtype = object::owned(PyObject_GetAttr(from, dtype_name.get()));
  if (itemsize == 2) {
    const object called = object::owned_or_absent(PyObject_GetAttrString(dtype.get(), "name"));
    if (called && PyUnicode_Check(called.get()) && PyUnicode_CompareWithASCIIString(called.get(), "bfloat16") == 0) {
      tensor.dtype = {bfloat_code, 16, 1};
      return;
    }
  }
  raise(PyExc_ValueError,
        "%s: argument '%s': expected elements of float, double, half, bfloat16, bool or an integer "
        "type, got %S",
        at.op, at.argument, dtype.get());
}

/// Of arrays that are written. A capsule of before DLPack 1 cannot say it.
[[noreturn]] void refuse_read_only(const place& at) {
  raise(PyExc_ValueError, "%s: argument '%s': expected memory that may be written, got a read-only array", at.op,
        at.argument);
}

}  // namespace

std::int64_t to_int64(const place& at, PyObject* from) {
  // Asked for first: the error of PyNumber_Index would not name the argument. 0.5 is no number of anything here.
  if (!PyIndex_Check(from)) {
    raise(PyExc_TypeError, "%s: argument '%s': expected a whole number, got %R", at.op, at.argument, from);
  }
  const object number = object::owned(PyNumber_Index(from));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow != 0) {
    raise(PyExc_ValueError, "%s: argument '%s': expected a number of 64 bits, got %R", at.op, at.argument, from);
  }
  if (value == -1 && PyErr_Occurred() != nullptr) throw raised{};
  return value;
}

array::~array() {
  // NumPy's are freed by their owner's reference.
  if (plain_ == nullptr && versioned_ == nullptr) return;
  // Deleters may run Python, which must not find an error that is on its way.
  const error_aside aside;
  if (plain_ != nullptr && plain_->deleter != nullptr) plain_->deleter(plain_);
  if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
}

void array::take(const place& at, PyObject* from, access a, work_stream& on) {
  if (from == Py_None) return;
  // What it is of, and whether more than one may read it, nobody knows: it is taken once.
  if (PyCapsule_CheckExact(from)) {
    take_capsule(at, from, a);
    on.join_capsule(tensor_.device);
    from_ = protocol::capsule;
    return;
  }
  if (!is_numpy_array(from)) {
    // Before __dlpack__, which makes a capsule and a call of Python for each array.
    if (const exchange_functions* const exchange = find_exchange(from)) {
      take_exchange(at, *exchange, from, a);
      on.join_unordered(from, tensor_.device);
      from_ = protocol::dlpack;
      return;
    }
  }
  // The array interface first: NumPy's own __dlpack__ exports neither read-only arrays nor bfloat16.
  if (object capsule = is_numpy_array(from)
                           ? object::owned(PyObject_GetAttr(from, array_struct_name.get()))
                           : object::owned_or_absent(PyObject_GetAttr(from, array_struct_name.get()))) {
    take_interface(at, std::move(capsule), from, a);
    return;
  }
  if (object::owned_or_absent(PyObject_GetAttr(from, dlpack_name.get()))) {
    take_dlpack(at, from, a, on);
    from_ = protocol::dlpack;
    return;
  }
  const object type = object::owned(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(from)), type_name.get()));
  raise(PyExc_TypeError, "%s: argument '%s': expected an array of NumPy's, or one with __dlpack__, got %S", at.op,
        at.argument, type.get());
}

void array::take_integers(const place& at, PyObject* from, work_stream& on) {
  // These three alone: what else is a sequence may be an array of a library, whose items are no numbers of Python's.
  if (PyList_Check(from) || PyTuple_Check(from) || PyRange_Check(from)) {
    take_sequence(at, from);
  } else {
    take(at, from, access::read, on);
  }
}

void array::take_interface(const place& at, object capsule, PyObject* from, access a) {
  const auto* const given = static_cast<const array_interface*>(PyCapsule_GetPointer(capsule.get(), nullptr));
  // A capsule of another kind has set an error.
  if (given == nullptr) throw raised{};
  if (!to_type(given->kind, given->itemsize, tensor_)) to_added_type(at, from, given->itemsize, tensor_);
  if ((given->flags & native_order_flag) == 0 && given->itemsize > 1) {
    raise(PyExc_ValueError, "%s: argument '%s': expected elements in the byte order of this machine, got the other one",
          at.op, at.argument);
  }
  if (a == access::write && (given->flags & writeable_flag) == 0) refuse_read_only(at);
  tensor_.data = given->data;
  tensor_.device = {cpu_device, 0};
  tensor_.ndim = given->axes;
  // With more axes the library refuses it before it looks at one.
  if (given->axes <= most_axes) {
    bool empty = false;
    for (int i = 0; i < given->axes; ++i) empty = empty || given->shape[i] == 0;
    for (int i = 0; i < given->axes; ++i) {
      strides_[i] = given->strides[i] / given->itemsize;
      // A step that is never made may be anything.
      if (given->strides[i] % given->itemsize != 0 && given->shape[i] > 1 && !empty) {
        raise(PyExc_ValueError,
              "%s: argument '%s': expected strides of whole elements, multiples of %d bytes, got %zd "
              "bytes at axis %d",
              at.op, at.argument, given->itemsize, given->strides[i], i);
      }
    }
  }
  // Read where they lie: the capsule is held as long as this is.
  tensor_.shape = reinterpret_cast<const std::int64_t*>(given->shape);
  tensor_.strides = strides_;
  owner_ = std::move(capsule);
  from_ = protocol::array_interface;
}

void array::take_dlpack(const place& at, PyObject* from, access a, work_stream& on) {
  if (a == access::write && is_value(from)) refuse_read_only(at);
  // Memory of the host takes no stream, so that its place is asked for first. Without kernels for a GPU nothing is read
  // there, and the question, a call of Python for each array, is saved.
  const std::optional<device_type> device = gpu::is_built() ? device_of(from) : std::nullopt;
  const object stream = device ? on.join(from, *device) : object{};
  const object capsule = call_dlpack(from, stream.get());
  take_capsule(at, capsule.get(), a);
  if (device) return;
  // One that does not say where it is was told no stream, and is in order on the default stream at most.
  on.join_capsule(tensor_.device);
  if (gpu::is_built() && is_on_gpu(tensor_.device) && on.handle() != nullptr) {
    raise(PyExc_BufferError,
          "%s: argument '%s': expected an array with __dlpack_device__, as it is on a GPU and the call is not on the "
          "default stream",
          at.op, at.argument);
  }
}

void array::take_exchange(const place& at, const exchange_functions& exchange, PyObject* from, access a) {
  // __dlpack__ refuses them; these functions do not ask.
  if (is_recorded(from)) {
    raise(PyExc_BufferError,
          "%s: argument '%s': this tensor requires a gradient: aft.torch has the operators that are "
          "differentiated, and detach() a tensor without one",
          at.op, at.argument);
  }
  // Only a managed tensor says whether it may be written. What is read lives as long as the arguments of the call.
  if (a == access::read && exchange.to_borrowed != nullptr) {
    if (exchange.to_borrowed(from, &tensor_) != 0) throw raised{};
    return;
  }
  versioned_tensor* made = nullptr;
  if (exchange.to_managed(from, &made) != 0) throw raised{};
  take_versioned(at, made, a);
}

void array::take_versioned(const place& at, versioned_tensor* given, access a) {
  // Owned before anything is refused, so that it is freed then too.
  versioned_ = given;
  if (a == access::write && (given->flags & read_only_flag) != 0) refuse_read_only(at);
  if (a == access::write && (given->flags & copied_flag) != 0) {
    raise(PyExc_ValueError, "%s: argument '%s': expected memory of the array itself, got a copy", at.op, at.argument);
  }
  tensor_ = given->tensor;
}

void array::take_capsule(const place& at, PyObject* capsule, access a) {
  if (PyCapsule_IsValid(capsule, versioned_name)) {
    auto* const given = static_cast<versioned_tensor*>(PyCapsule_GetPointer(capsule, versioned_name));
    // Renaming is taking: it comes after whatever may refuse it.
    // Of another major version nothing but the beginning is known, and its owner stays the capsule.
    if (given->major != known_major) {
      raise(PyExc_BufferError, "%s: argument '%s': expected DLPack of version 1, got %u.%u", at.op, at.argument,
            unsigned{given->major}, unsigned{given->minor});
    }
    if (PyCapsule_SetName(capsule, used_versioned_name) != 0) throw raised{};
    take_versioned(at, given, a);
  } else if (PyCapsule_IsValid(capsule, plain_name)) {
    auto* const given = static_cast<managed_tensor*>(PyCapsule_GetPointer(capsule, plain_name));
    if (PyCapsule_SetName(capsule, used_plain_name) != 0) throw raised{};
    plain_ = given;
    tensor_ = given->tensor;
  } else {
    raise(PyExc_ValueError, "%s: argument '%s': expected a DLPack capsule that nobody has used, got another object",
          at.op, at.argument);
  }
}

void array::take_sequence(const place& at, PyObject* from) {
  const Py_ssize_t count = PySequence_Size(from);
  if (count < 0) throw raised{};
  // Python's numbers are objects: of all that comes in, only these are copied.
  numbers_.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const object item = object::owned(PySequence_GetItem(from, i));
    numbers_.push_back(to_int64(at, item.get()));
  }
  count_ = count;
  tensor_ = {numbers_.data(), {cpu_device, 0}, 1, {int_code, 64, 1}, &count_, nullptr, 0};
  from_ = protocol::sequence;
}

}  // namespace aft::python
