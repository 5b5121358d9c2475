// SPDX-License-Identifier: Apache-2.0
/// @file result.hpp  Arrays that a call writes: the caller's, or new ones of the kind that the inputs are.
#pragma once

#include <aft/aft.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "array.hpp"
#include "memory.hpp"
#include "../python.hpp"

namespace aft::python {

using extents = std::vector<std::int64_t>;
using element_type = decltype(aft_tensor::dtype);

/// Makes new arrays as `like` is one: NumPy's for NumPy's, and those of a library that offers from_dlpack by it. Where
/// `like` is in memory of a GPU the library makes them itself, in the order of its own stream, if it can.
class maker {
 public:
  /// `like` came to the call on that stream as `as`. All three outlive the maker.
  maker(PyObject* like, const array& as, work_stream& on);

  /// The function from_dlpack to call with memory of this package; none: NumPy makes the array itself.
  const object& from_dlpack() const { return from_dlpack_; }
  /// The array beside which, on its GPU, its library has to make results; NULL: they are in memory of the host.
  PyObject* on_gpu() const { return on_gpu_; }
  /// Where it is: results are there too.
  device_type device() const { return device_; }
  work_stream& stream() const { return on_; }

 private:
  PyObject* on_gpu_ = nullptr;  ///< lives as long as the call's arguments
  device_type device_{cpu_device, 0};
  work_stream& on_;
  object from_dlpack_;
};

/// One array that is written, or none.
class result {
 public:
  /// None: not wanted. True: a new array of that shape and type. Else the array that is to be written. Without a shape,
  /// or of a type that results cannot have, nothing is made: the library is about to refuse the call.
  void want(const place& at, PyObject* wanted, const maker& m, const std::optional<extents>& shape, element_type type);

  const aft_tensor* tensor() const { return made_ ? &own_ : given_.tensor(); }
  bool wanted() const { return wanted_; }
  std::optional<extents> shape() const;
  /// What the caller gets: None, the array that was given, or the new one.
  object to_python(const maker& m) const;

 private:
  void make(const place& at, const maker& m, const extents& shape, element_type type);

  bool wanted_ = false, made_ = false;
  array given_;
  aft_tensor own_{};
  std::optional<block> block_;
  object python_;
};

/// The extents of an array; none where it is not there or has more axes than any call takes.
std::optional<extents> shape_of(const array& a);
/// The type of an array's elements; none for one that is not given.
element_type type_of(const array& a);
/// Whether results may have such elements.
bool is_floating(element_type type);

}  // namespace aft::python
