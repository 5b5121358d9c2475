// SPDX-License-Identifier: Apache-2.0
/// @file tools.cpp  What is beside the operators: reparameterize and attention_map.
#include "call.hpp"

namespace aft::python {

namespace {

/// (B, Tq, Tk, channels), or without B as k is.
std::optional<extents> shape_of_map(const array& k, const bias_argument& bias, std::int64_t channels) {
  // What cannot be told is left to the library, whose texts name what is wrong with k or the bias.
  if (!k.given() || k.axes() < 2 || k.axes() > array::most_axes || bias.rows() < 0) return {};
  extents shape(k.tensor()->shape, k.tensor()->shape + k.axes() - 1);
  shape.insert(shape.end() - 1, bias.rows());
  shape.push_back(channels < 0 ? k.extent(-1) : channels);
  return shape;
}

}  // namespace

PyObject* reparameterize(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::reparameterize";
    const std::vector<PyObject*> values = items(arguments, 5);  // r, gain, shift, threads, out
    work_stream on;
    array r, gain, shift;
    r.take({op, "r"}, values[0], access::read, on);
    gain.take({op, "gain"}, values[1], access::read, on);
    shift.take({op, "shift"}, values[2], access::read, on);
    options o;
    // Of the options nothing else concerns a map of the filter.
    o.take_threads(op, values[3]);
    const maker m(values[0], r, on);
    result out;
    out.want({op, "out"}, values[4], m, shape_of(r), type_of(r));
    run(op, on, o.c, [&] { return aft_reparameterize(r.tensor(), gain.tensor(), shift.tensor(), out.tensor(), &o.c); });
    return out.to_python(m);
  });
}

PyObject* reparameterize_backward(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::reparameterize_backward";
    const std::vector<PyObject*> values = items(arguments, 8);  // r, gain, shift, dout, threads, dr, dgain, dshift
    work_stream on;
    array r, gain, shift, dout;
    r.take({op, "r"}, values[0], access::read, on);
    gain.take({op, "gain"}, values[1], access::read, on);
    shift.take({op, "shift"}, values[2], access::read, on);
    dout.take({op, "dout"}, values[3], access::read, on);
    options o;
    o.take_threads(op, values[4]);
    const maker m(values[0], r, on);
    result dr, dgain, dshift;
    dr.want({op, "dr"}, values[5], m, shape_of(r), type_of(r));
    dgain.want({op, "dgain"}, values[6], m, shape_of(gain), type_of(gain));
    dshift.want({op, "dshift"}, values[7], m, shape_of(shift), type_of(shift));
    run(op, on, o.c, [&] {
      return aft_reparameterize_backward(r.tensor(), gain.tensor(), shift.tensor(), dout.tensor(), dr.tensor(),
                                         dgain.tensor(), dshift.tensor(), &o.c);
    });
    // All are made before the tuple is, which a failure would leave half filled.
    const object a = dr.to_python(m), b = dgain.to_python(m), c = dshift.to_python(m);
    return object::owned(PyTuple_Pack(3, a.get(), b.get(), c.get()));
  });
}

PyObject* attention_map(PyObject*, PyObject* arguments) {
  return guarded([&] {
    constexpr const char* op = "aft::attention_map";
    constexpr int inputs = 3;  // k, bias, channels; then the options, and out
    const std::vector<PyObject*> values = items(arguments, inputs + options_count + 1);
    work_stream on;
    array k;
    bias_argument bias;
    options o;
    k.take({op, "k"}, values[0], access::read, on);
    bias.take(op, values[1], on);
    // None stands for as many as k has, which only the array tells; below 0 is kept for it, and refused from a caller.
    const std::int64_t channels = values[2] == Py_None ? -1 : to_int64({op, "channels"}, values[2]);
    if (channels < 0 && values[2] != Py_None) {
      raise(PyExc_ValueError, "%s: argument 'channels': expected 0 or more, got %lld", op,
            static_cast<long long>(channels));
    }
    o.take(op, values.data() + inputs, on);
    const maker m(values[0], k, on);
    result out;
    out.want({op, "out"}, values[inputs + options_count], m, shape_of_map(k, bias, channels), type_of(k));
    run(op, on, o.c, [&] { return aft_attention_map(k.tensor(), bias.bias(), out.tensor(), &o.c); });
    return out.to_python(m);
  });
}

}  // namespace aft::python
