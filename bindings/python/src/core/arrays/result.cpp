// SPDX-License-Identifier: Apache-2.0
#include "result.hpp"

#include "libraries.hpp"
#include "../device/gpu.hpp"

namespace aft::python {

namespace {

object to_tuple(const extents& shape) {
  object made = object::owned(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const number = object::owned(PyLong_FromLongLong(shape[i])).release();
    if (PyTuple_SetItem(made.get(), static_cast<Py_ssize_t>(i), number) != 0) throw raised{};
  }
  return made;
}

}  // namespace

// A capsule says nothing of the library that it came from, and the array interface is NumPy's.
maker::maker(PyObject* like, const array& as, work_stream& on) : on_(on) {
  if (as.came_by() != protocol::dlpack) return;
  if (is_on_gpu(as.tensor()->device)) {
    on_gpu_ = like;
    device_ = {cuda_device, as.tensor()->device.id};
  }
  from_dlpack_ = find_from_dlpack(like);
}

void result::want(const place& at, PyObject* wanted, const maker& m, const std::optional<extents>& shape,
                  element_type type) {
  if (wanted == Py_None) return;
  wanted_ = true;
  // A place of the caller's is used whatever its shape: what does not fit the library refuses by name.
  if (wanted != Py_True) {
    given_.take(at, wanted, access::write, m.stream());
    python_ = object::shared(wanted);
  } else if (shape && is_floating(type)) {
    make(at, m, *shape, type);
  }
}

void result::make(const place& at, const maker& m, const extents& shape, element_type type) {
  if (m.on_gpu() != nullptr) python_ = empty_beside(m.on_gpu(), to_tuple(shape).get(), type.code, type.bits);
  if (python_) {
    given_.take(at, python_.get(), access::write, m.stream());
    return;
  }
  if (m.from_dlpack()) {
    // Of a library whose arrays are made and never written, this package's own memory on that GPU. Where it can have
    // none it is the host's, and the library refuses the call.
    if (m.on_gpu() != nullptr && gpu::is_built()) {
      try {
        block_.emplace(shape, type, m.device());
      } catch (const gpu::failure& failed) {
        raise(device_error, "%s: %s", at.op, failed.what());
      }
      m.stream().complete_at_return();
    } else {
      block_.emplace(shape, type);
    }
    own_ = block_->tensor();
    made_ = true;
  } else {
    // Beside arrays of a GPU the call is refused, by a text that names both places.
    python_ = numpy_empty(to_tuple(shape).get(), type.code, type.bits);
    given_.take({"aft", "out"}, python_.get(), access::write, m.stream());
  }
}

std::optional<extents> result::shape() const {
  // Of a place too, which then tells how many rows the others have.
  return made_ ? std::optional(block_->shape) : shape_of(given_);
}

object result::to_python(const maker& m) const {
  if (!made_) return python_ ? python_ : object::shared(Py_None);
  // Imported by the library that it goes to: no element is copied.
  const object memory = make_memory(*block_);
  return object::owned(PyObject_CallFunctionObjArgs(m.from_dlpack().get(), memory.get(), nullptr));
}

std::optional<extents> shape_of(const array& a) {
  // Beyond that an array's extents were not read.
  if (!a.given() || a.axes() > array::most_axes) return {};
  return extents(a.tensor()->shape, a.tensor()->shape + a.axes());
}

element_type type_of(const array& a) {
  return a.given() ? a.tensor()->dtype : element_type{};
}

bool is_floating(element_type type) {
  const auto [code, bits, lanes] = type;
  return lanes == 1 &&
         ((code == float_code && (bits == 16 || bits == 32 || bits == 64)) || (code == bfloat_code && bits == 16));
}

}  // namespace aft::python
