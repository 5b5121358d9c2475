// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <cstring>

#include "stream.hpp"

namespace aft::python {

bool is_forked = false;

namespace {

/// As the library names itself in its texts, so that those of this file read alike.
constexpr const char* forward_names[] = {"aft::full", "aft::local", "aft::simple", "aft::conv"};
constexpr const char* backward_names[] = {"aft::full_backward", "aft::local_backward", "aft::simple_backward",
                                          "aft::conv_backward"};

/// A word of a keyword and its number in C.
struct choice {
  const char* text;
  std::int32_t value;
};
constexpr choice gates[] = {{"sigmoid", AFT_GATE_SIGMOID}, {"none", AFT_GATE_NONE}, {"identity", AFT_GATE_IDENTITY},
                            {"relu", AFT_GATE_RELU},       {"tanh", AFT_GATE_TANH}, {"silu", AFT_GATE_SILU}};
constexpr choice outsides[] = {{"zero_bias", AFT_ZERO_BIAS}, {"excluded", AFT_EXCLUDED}};
constexpr choice arithmetics[] = {{"automatic", AFT_ARITHMETIC_AUTOMATIC}, {"full", AFT_ARITHMETIC_FULL}};

/// A handful of names is compared faster than any table is asked, and without memory of Python's that would be kept.
template <std::size_t N>
std::int32_t choose(const place& at, PyObject* from, const choice (&known)[N]) {
  if (PyUnicode_Check(from)) {
    for (const choice& c : known) {
      if (PyUnicode_CompareWithASCIIString(from, c.text) == 0) return c.value;
    }
  }
  // The text names every word there is, as those of the library name what they expect.
  object list = object::owned(PyUnicode_FromFormat("'%s'", known[0].text));
  for (std::size_t i = 1; i < N; ++i) list = object::owned(PyUnicode_FromFormat("%U, '%s'", list.get(), known[i].text));
  raise(PyExc_ValueError, "%s: argument '%s': expected one of %U, got %R", at.op, at.argument, list.get(), from);
}

bool is_true(const place& at, PyObject* from) {
  // Anything with a truth, as Python's own functions take it. An array of several elements has none, and says so by a
  // text that does not name the argument; errors of other kinds are their maker's.
  const int answer = PyObject_IsTrue(from);
  if (answer >= 0) return answer != 0;
  if (!PyErr_ExceptionMatches(PyExc_ValueError)) throw raised{};
  PyErr_Clear();
  raise(PyExc_ValueError, "%s: argument '%s': expected True or False, got %R", at.op, at.argument, from);
}

std::int32_t to_threads(const char* op, PyObject* from) {
  const std::int64_t threads = to_int64({op, "threads"}, from);
  // Beyond 32 bits it says no more than the largest that has them.
  return static_cast<std::int32_t>(threads < INT32_MIN ? INT32_MIN : (threads > INT32_MAX ? INT32_MAX : threads));
}

/// The last of the offsets, -1 where the library is about to refuse them.
std::int64_t last_number(const array& a) {
  const aft_tensor& t = *a.tensor();
  if (t.device.type != cpu_device || a.axes() != 1 || t.shape[0] < 1 || t.dtype.code != int_code || t.data == nullptr) {
    return -1;
  }
  const std::int64_t at = (t.shape[0] - 1) * (t.strides == nullptr ? 1 : t.strides[0]);
  const char* const first = static_cast<const char*>(t.data) + t.byte_offset;
  // Copied, for an address between elements is refused only later.
  std::int64_t wide = -1;
  std::int32_t narrow = -1;
  if (t.dtype.bits == 64) std::memcpy(&wide, first + 8 * at, sizeof wide);
  if (t.dtype.bits == 32) std::memcpy(&narrow, first + 4 * at, sizeof narrow);
  return t.dtype.bits == 32 ? narrow : wide;
}

}  // namespace

void check(int code) {
  switch (code) {
    case AFT_OK: return;
    case AFT_SHAPE_ERROR:
      raise(PyExc_ValueError, "%s", aft_last_error());
      // Two kinds of wrong place are one class: a device that the build lacks, and one that failed.
    case AFT_DEVICE_ERROR: raise(device_error, "%s", aft_last_error());
    case AFT_OUT_OF_MEMORY:
      raise(PyExc_MemoryError, "%s", aft_last_error());
      // The library found a mistake of its own.
    default: raise(PyExc_SystemError, "%s", aft_last_error());
  }
}

std::vector<PyObject*> items(PyObject* arguments, Py_ssize_t count) {
  // Only the package's own functions call these, so that a wrong number is a mistake in them.
  if (PyTuple_Size(arguments) != count) {
    raise(PyExc_TypeError, "expected %zd arguments, got %zd", count, PyTuple_Size(arguments));
  }
  std::vector<PyObject*> found(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) found[static_cast<std::size_t>(i)] = PyTuple_GetItem(arguments, i);
  return found;
}

void options::take_threads(const char* op, PyObject* threads) {
  c.size = sizeof c;
  c.threads = to_threads(op, threads);
  // OpenMP's threads did not come along, and a call would wait for them without end. Results do not depend on it.
  if (is_forked && c.threads >= 0) c.threads = 1;
}

void options::take(const char* op, PyObject* const* values, work_stream& on) {
  take_threads(op, values[threads_at]);
  c.causal = is_true({op, "causal"}, values[causal_at]);
  c.gate = choose({op, "gate"}, values[gate_at], gates);
  c.outside = choose({op, "outside"}, values[outside_at], outsides);
  c.arithmetic = choose({op, "arithmetic"}, values[arithmetic_at], arithmetics);
  c.first_query = to_int64({op, "first_query"}, values[first_query_at]);
  mask_.take({op, "mask"}, values[mask_at], access::read, on);
  key_lengths_.take_integers({op, "key_lengths"}, values[key_lengths_at], on);
  query_lengths_.take_integers({op, "query_lengths"}, values[query_lengths_at], on);
  query_offsets_.take_integers({op, "query_offsets"}, values[query_offsets_at], on);
  key_offsets_.take_integers({op, "key_offsets"}, values[key_offsets_at], on);
  slot_ids_.take_integers({op, "slot_ids"}, values[slot_ids_at], on);
  // From here on the struct points into the members above.
  c.mask = mask_.tensor();
  c.key_lengths = key_lengths_.tensor();
  c.query_lengths = query_lengths_.tensor();
  c.query_offsets = query_offsets_.tensor();
  c.key_offsets = key_offsets_.tensor();
  c.slot_ids = slot_ids_.tensor();
  c.stream = to_stream({op, "stream"}, values[stream_at], on, slots_);
}

call::call(PyObject* const* values, direction way) {
  // By number: the package has a function for each, and no name is compared in a call.
  const std::int64_t number = to_int64({"aft", "op"}, values[0]);
  if (number < AFT_FULL || number > AFT_CONV) raise(PyExc_ValueError, "aft: no operator %lld", number);
  op = static_cast<int>(number);
  name = (way == direction::forward ? forward_names : backward_names)[op];
  // Without q, as some gates allow, results are of the kind that k is.
  like = values[1] == Py_None ? values[2] : values[1];
  // Before any array: each is ordered to the stream when it comes.
  on.use(values[inputs + cuda_stream_at]);
  q.take({name, "q"}, values[1], access::read, on);
  k.take({name, "k"}, values[2], access::read, on);
  v.take({name, "v"}, values[3], access::read, on);
  if (op == AFT_FULL || op == AFT_LOCAL) bias.take(name, values[4], on);
  if (op == AFT_CONV) filter.take(name, values[4], on);
  if (op == AFT_LOCAL) {
    // aft.Window is a named tuple, which has its order here.
    if (!PyTuple_Check(values[5]) || PyTuple_Size(values[5]) != 2) {
      raise(PyExc_TypeError, "%s: argument 'window': expected an aft.Window, got %R", name, values[5]);
    }
    before = to_int64({name, "window"}, PyTuple_GetItem(values[5], 0));
    after = to_int64({name, "window"}, PyTuple_GetItem(values[5], 1));
  }
  opt.take(name, values + inputs, on);
}

std::optional<extents> call::shape() const {
  // Without q nothing says how many queries there are but the bias, whose rows they are, and offsets, which end there.
  // A stream's bias has rows for all positions: a call of one has as many queries as keys.
  if (q.given()) return shape_of(q);
  std::optional<extents> shape = shape_of(v);
  if (!shape || shape->size() < 2) return shape;
  std::int64_t& rows = (*shape)[shape->size() - 2];
  if (opt.query_offsets().given()) {
    const std::int64_t last = opt.has_key_offsets() ? last_number(opt.query_offsets()) : -1;
    if (last >= 0) rows = last;
  } else if (opt.c.stream == nullptr && (op == AFT_FULL || op == AFT_LOCAL) && bias.rows() >= 0) {
    rows = bias.rows();
  }
  return shape;
}

}  // namespace aft::python
