// SPDX-License-Identifier: Apache-2.0
/// @file bias.hpp  Biases and their gradients: an array, aft.Factorized or aft.Banded.
#pragma once

#include <aft/aft.h>

#include "../arrays/array.hpp"
#include "../arrays/result.hpp"

namespace aft::python {

/// The classes of the package that biases are of. They are found at first use: the package imports this extension.
struct bias_classes {
  static PyObject* factorized();
  static PyObject* banded();
  static PyObject* sparse_filter();
};

/// The argument `filter` of a convolution: an array, or taps and values of an aft.SparseFilter.
class filter_argument {
 public:
  void take(const char* op, PyObject* from, work_stream& on);
  bool is_sparse() const { return taps_.given(); }
  const array& taps() const { return taps_; }
  /// The filter, or the values of a sparse one.
  const array& values() const { return values_; }
  /// The taps as they were given.
  PyObject* given_taps() const { return given_taps_; }

 private:
  array taps_, values_;
  PyObject* given_taps_ = nullptr;
};

/// The gradient of one: an array, or an aft.SparseFilter of the same taps.
class filter_result {
 public:
  void want(const char* op, PyObject* wanted, const maker& m, const filter_argument& of);
  const aft_tensor* tensor() const { return values_.tensor(); }
  object to_python(const maker& m) const;

 private:
  result values_;
  object given_;
  PyObject* taps_ = nullptr;
};

/// The argument `bias`. Factors are `u` and `v`, everything else is `w`.
class bias_argument {
 public:
  void take(const char* op, PyObject* from, work_stream& on);
  const aft_bias* bias() const { return &bias_; }
  const array& w() const { return w_; }
  const array& u() const { return u_; }
  const array& v() const { return v_; }
  /// How many rows of queries it has, which is Tq of a call on whole sequences; -1 where it cannot be told.
  std::int64_t rows() const;

 private:
  aft_bias bias_{};
  array w_, u_, v_;
};

/// The gradient of one, of its kind, its shapes and its types.
class bias_result {
 public:
  /// As result::want: None, True, or a bias of arrays to be written.
  void want(const char* op, PyObject* wanted, const maker& m, const bias_argument& of);
  const aft_bias* bias() const { return wanted_ ? &bias_ : nullptr; }
  object to_python(const maker& m) const;

 private:
  bool wanted_ = false;
  aft_bias bias_{};
  result w_, u_, v_;
  object given_;
};

}  // namespace aft::python
