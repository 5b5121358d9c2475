// SPDX-License-Identifier: Apache-2.0
/// @file call.hpp  A call of an operator: arguments, options, and how its end becomes a Python result or error.
#pragma once

#include <aft/aft.h>

#include "../arrays/array.hpp"
#include "bias.hpp"
#include "../python.hpp"

namespace aft::python {

/// Whether this process was forked from one that had imported the package.
extern bool is_forked;

/// Raises what a code other than AFT_OK stands for, with the library's text.
void check(int code);

/// The options of an operator, from the Python values of one call in the order of `options_argument`.
class options {
 public:
  void take(const char* op, PyObject* const* values, work_stream& on);
  /// `threads` alone, for calls that look at nothing else.
  void take_threads(const char* op, PyObject* threads);
  aft_options c{};

  const array& query_offsets() const { return query_offsets_; }
  bool has_key_offsets() const { return key_offsets_.given(); }

 private:
  array mask_, key_lengths_, query_lengths_, query_offsets_, key_offsets_, slot_ids_;
  object slots_;  // another thread may take them from their Stream while a call runs
};

/// Where each option stands among the values that options::take reads.
enum options_argument {
  causal_at,
  gate_at,
  outside_at,
  arithmetic_at,
  mask_at,
  key_lengths_at,
  query_lengths_at,
  first_query_at,
  query_offsets_at,
  key_offsets_at,
  stream_at,
  slot_ids_at,
  threads_at,
  cuda_stream_at,  ///< None: the default stream
  options_count
};

enum class direction { forward, backward };

/// An operator with its inputs.
class call {
 public:
  /// values: op, q, k, v, bias, window, then the options.
  call(PyObject* const* values, direction way);

  static constexpr int inputs = 6;
  static constexpr int arguments = inputs + options_count;

  const char* name;
  int op;
  PyObject* like;  ///< results are of its kind
  work_stream on;
  array q, k, v;
  bias_argument bias;
  filter_argument filter;
  std::int64_t before = 0, after = 0;
  options opt;

  /// The shape of y.
  std::optional<extents> shape() const;
};

/// The functions of the module.
PyObject* forward(PyObject*, PyObject* arguments);
PyObject* backward(PyObject*, PyObject* arguments);
PyObject* reparameterize(PyObject*, PyObject* arguments);
PyObject* reparameterize_backward(PyObject*, PyObject* arguments);
PyObject* filter_entropy(PyObject*, PyObject* arguments);
PyObject* filter_entropy_backward(PyObject*, PyObject* arguments);
PyObject* gumbel_filter(PyObject*, PyObject* arguments);
PyObject* gumbel_filter_backward(PyObject*, PyObject* arguments);
PyObject* gumbel_filter_hard(PyObject*, PyObject* arguments);
PyObject* attention_map(PyObject*, PyObject* arguments);

/// The items of a tuple that has to have `count`.
std::vector<PyObject*> items(PyObject* arguments, Py_ssize_t count);

/// Runs a call of the C interface while other Python threads go on.
template <class Function>
int without_lock(Function function) {
  PyThreadState* const state = PyEval_SaveThread();
  const int code = function();
  PyEval_RestoreThread(state);
  return code;
}

/// The same for a call on the arrays of a stream of a GPU: `c` is told the stream, an error is Python's, and what other
/// libraries have to find done is done then.
template <class Function>
void run(const char* op, const work_stream& on, aft_options& c, Function function) {
  c.cuda_stream = on.handle();
  check(without_lock(function));
  on.finish(op);
}

}  // namespace aft::python
