// SPDX-License-Identifier: Apache-2.0
/// @file array.hpp  An argument that is an array of some library, as the C interface takes it.
#pragma once

#include <aft/aft.h>

#include <cstdint>
#include <vector>

#include "dlpack.hpp"
#include "work_stream.hpp"
#include "../python.hpp"

namespace aft::python {

/// Who asks, for the texts of errors: they read as those of the library.
struct place {
  const char* op;        ///< "aft::full"
  const char* argument;  ///< "q"
};

/// A whole number of any type that Python takes for one. Raises TypeError or ValueError.
std::int64_t to_int64(const place& at, PyObject* from);

enum class access { read, write };

/// The protocol by which an array came.
enum class protocol { none, array_interface, dlpack, capsule, sequence };

/// Somebody else's memory, described as an aft_tensor. It holds what keeps the memory alive, and lets go of it when it
/// is destroyed, with the GIL. Nothing is copied but sequences of numbers.
class array {
 public:
  array() = default;
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array();

  /// Takes an array by NumPy's array interface or by DLPack, or a DLPack capsule itself, which it consumes. `from` has
  /// to outlive what is read; what is written is held. None leaves it empty. Raises TypeError where `from` is none of
  /// them, ValueError where a stride is between elements, the byte order is another one, or memory that is to be
  /// written is read-only. One on a GPU is in order on the call's stream `on` then.
  void take(const place& at, PyObject* from, access a, work_stream& on);
  /// The same, with lists and other sequences of whole numbers, which become int64.
  void take_integers(const place& at, PyObject* from, work_stream& on);

  /// NULL where nothing was given, which the C interface reads alike.
  const aft_tensor* tensor() const { return from_ == protocol::none ? nullptr : &tensor_; }
  bool given() const { return from_ != protocol::none; }
  protocol came_by() const { return from_; }

  /// As far as they can be read: of a description without a shape, which the library refuses, none.
  int axes() const { return tensor_.shape == nullptr || tensor_.ndim < 0 ? 0 : tensor_.ndim; }
  /// Of an axis, from the end where negative.
  std::int64_t extent(int axis) const { return tensor_.shape[axis < 0 ? axis + tensor_.ndim : axis]; }

  /// Beyond it the library refuses an array by its number of axes alone.
  static constexpr int most_axes = 8;

 private:
  void take_interface(const place& at, object capsule, PyObject* from, access a);
  void take_dlpack(const place& at, PyObject* from, access a, work_stream& on);
  void take_exchange(const place& at, const exchange_functions& exchange, PyObject* from, access a);
  void take_versioned(const place& at, versioned_tensor* given, access a);
  void take_capsule(const place& at, PyObject* capsule, access a);
  void take_sequence(const place& at, PyObject* from);

  aft_tensor tensor_{};
  std::int64_t count_ = 0, strides_[most_axes];
  protocol from_ = protocol::none;
  object owner_;
  managed_tensor* plain_ = nullptr;
  versioned_tensor* versioned_ = nullptr;
  std::vector<std::int64_t> numbers_;
};

}  // namespace aft::python
