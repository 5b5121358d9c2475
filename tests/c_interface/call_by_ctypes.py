#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operator, forward and backward, from Python with nothing but its standard library.

call_by_ctypes.py <library>    compares with the formulas, written as loops over pairs

Arithmetic is double on both sides. A result is a sum of at most N terms, each of a few roundings; with |x| <= 1 in all
inputs no intermediate exceeds a few units, so that an absolute bound of N * 64 units of double covers both sides.
"""

import ctypes
import itertools
import math
import random
import sys

B, T, D, HK, H, FACTORS = 2, 6, 4, 2, 2, 3
BEFORE, AFTER = 2, 1
UNIT = 2.0 ** -52
BOUND = B * T * T * D * 64 * UNIT
DENSE, FACTORIZED, BANDED = 0, 1, 2
SIGMOID, TANH = 0, 4
SLOTS = 3


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", Dtype),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


TENSOR = ctypes.POINTER(Tensor)


class Bias(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("w", TENSOR), ("u", TENSOR), ("v", TENSOR)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("causal", ctypes.c_int32), ("gate", ctypes.c_int32),
                ("outside", ctypes.c_int32), ("arithmetic", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("first_query", ctypes.c_int64), ("mask", TENSOR), ("key_lengths", TENSOR), ("lse", TENSOR),
                ("average", TENSOR), ("query_lengths", TENSOR), ("query_offsets", TENSOR), ("key_offsets", TENSOR),
                ("slot_ids", TENSOR), ("stream", ctypes.c_void_p), ("cuda_stream", ctypes.c_void_p)]


class StreamSpec(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int32), ("dtype", Dtype), ("d", ctypes.c_int64), ("hk", ctypes.c_int64),
                ("before", ctypes.c_int64), ("after", ctypes.c_int64), ("taps", ctypes.c_int64),
                ("capacity", ctypes.c_int64)]


class Stream(ctypes.Structure):
    _fields_ = [("spec", ctypes.POINTER(StreamSpec)), ("state", TENSOR)]


class Array:
    """Doubles, row-major, read and written by an index of every axis."""

    def __init__(self, *shape, draw=None):
        self.shape = shape
        count = math.prod(shape)
        self.memory = (ctypes.c_double * count)(*([draw.uniform(-1, 1) for _ in range(count)] if draw else []))
        self.extents = (ctypes.c_int64 * len(shape))(*shape)
        self.tensor = Tensor(ctypes.cast(self.memory, ctypes.c_void_p), Device(1, 0), len(shape), Dtype(2, 64, 1),
                             self.extents, None, 0)

    def place(self, index):
        place = 0
        for i, extent in zip(index, self.shape):
            place = place * extent + i
        return place

    def __getitem__(self, index):
        return self.memory[self.place(index)]

    def __setitem__(self, index, value):
        self.memory[self.place(index)] = value

    @property
    def pointer(self):
        return ctypes.pointer(self.tensor)


class Call:
    """One operator: inputs, the outputs of the library and those of the formulas. `points` are the axes of its grid."""

    def __init__(self, seed, points=(T,), gate=SIGMOID):
        draw = random.Random(seed)
        self.points, self.gate = points, gate
        self.positions = list(itertools.product(*(range(n) for n in points)))
        self.q, self.v, self.dy = (Array(B, *points, D, draw=draw) for _ in range(3))
        self.k = Array(B, *points, HK, draw=draw)
        self.y, self.dq, self.dv = (Array(B, *points, D) for _ in range(3))
        self.dk = Array(B, *points, HK)
        self.draw = draw

    def gates(self, x):
        if self.gate == TANH:
            return math.tanh(x), 1 - math.tanh(x) ** 2
        s = 1 / (1 + math.exp(-x))
        return s, s * (1 - s)

    def check(self, name, w, dw, causal=False):
        """w(h, t, s) is the bias of two positions, by their numbers; dw(h, t, s, gradient) is told what it gets."""
        y, dq, dv, dk = (Array(B, *self.points, n) for n in (D, D, D, HK))
        numbered = list(enumerate(self.positions))
        for b, (t, at), c in itertools.product(range(B), numbered, range(D)):
            h, kc = c * H // D, c * HK // D
            seen = [(s, p, math.exp(self.k[b, *p, kc] + w(h, t, s))) for s, p in numbered if not causal or s <= t]
            total = sum(weight for _, _, weight in seen)
            average = sum(weight * self.v[b, *p, c] for _, p, weight in seen) / total
            gate, slope = self.gates(self.q[b, *at, c])
            y[b, *at, c] = gate * average
            dq[b, *at, c] = self.dy[b, *at, c] * slope * average
            g = self.dy[b, *at, c] * gate
            for s, p, weight in seen:
                dv[b, *p, c] += g * weight / total
                pair = g * weight / total * (self.v[b, *p, c] - average)
                dk[b, *p, kc] += pair
                dw(h, t, s, pair)
        for what, mine, other in (("y", y, self.y), ("dq", dq, self.dq), ("dv", dv, self.dv), ("dk", dk, self.dk)):
            same(f"{name}: {what}", mine, other)


def same(what, expected, came):
    worst = max(abs(a - b) for a, b in zip(expected.memory, came.memory))
    if not worst <= BOUND:
        sys.exit(f"{what}: {worst} from the formula, more than {BOUND}")


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.aft_last_error.restype = ctypes.c_char_p
        self.library.aft_isa.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            code = function(*(ctypes.c_int64(a) if isinstance(a, int) else a for a in arguments))
            if code != 0:
                sys.exit(f"{name}: {code}, {self.library.aft_last_error().decode()}")
        return call


def options(**given):
    return ctypes.byref(Options(size=ctypes.sizeof(Options), **given))


def data(call):
    return call.q.pointer, call.k.pointer, call.v.pointer


def gradients(call):
    return call.dy.pointer, call.dq.pointer, call.dk.pointer, call.dv.pointer


def in_window(t, s):
    return t - BEFORE <= s <= t + AFTER


def dense_and_factorized(library):
    """full and local, with each kind of bias; full in causal order too."""
    for seed, (kind, windowed, causal) in enumerate(itertools.product((DENSE, FACTORIZED, BANDED), (0, 1), (0, 1))):
        if kind == BANDED and not windowed:
            continue
        call = Call(seed, gate=SIGMOID if seed % 2 else TANH)
        o = options(gate=call.gate, causal=causal)
        shape = (H, T, BEFORE + AFTER + 1 if kind == BANDED else T)
        w, dw, dw_formula = Array(*shape, draw=call.draw), Array(*shape), Array(*shape)
        u, v = Array(H, T, FACTORS, draw=call.draw), Array(T, FACTORS, draw=call.draw)
        du, dv, du_formula, dv_formula = Array(H, T, FACTORS), Array(T, FACTORS), Array(H, T, FACTORS), Array(T, FACTORS)

        def bias_of(h, t, s):
            if windowed and not in_window(t, s):
                return 0
            if kind == FACTORIZED:
                return sum(u[h, t, i] * v[s, i] for i in range(FACTORS))
            return w[h, t, s - t + BEFORE if kind == BANDED else s]

        def collect(h, t, s, gradient):
            if windowed and not in_window(t, s):
                return
            if kind == FACTORIZED:
                for i in range(FACTORS):
                    du_formula[h, t, i] += gradient * v[s, i]
                    dv_formula[s, i] += gradient * u[h, t, i]
            else:
                dw_formula[h, t, s - t + BEFORE if kind == BANDED else s] += gradient

        if kind == FACTORIZED:
            bias, dbias = Bias(kind, None, u.pointer, v.pointer), Bias(kind, None, du.pointer, dv.pointer)
        else:
            bias, dbias = Bias(kind, w.pointer, None, None), Bias(kind, dw.pointer, None, None)
        window = (BEFORE, AFTER) if windowed else ()
        name = "local" if windowed else "full"
        getattr(library, f"aft_{name}")(*data(call), ctypes.byref(bias), *window, call.y.pointer, o)
        getattr(library, f"aft_{name}_backward")(*data(call), ctypes.byref(bias), *window, *gradients(call),
                                                 ctypes.byref(dbias), o)
        call.check(f"{name}, kind {kind}", bias_of, collect, causal)
        for what, mine, other in (("dbias.w", dw_formula, dw), ("dbias.u", du_formula, du), ("dbias.v", dv_formula, dv)):
            same(f"{name}, kind {kind}: {what}", mine, other)


def simple(library):
    call = Call(20)
    library.aft_simple(*data(call), call.y.pointer, None)
    library.aft_simple_backward(*data(call), *gradients(call), None)
    call.check("simple", lambda h, t, s: 0, lambda h, t, s, gradient: None)


def conv(library):
    for points, taps in (((T,), (3,)), ((2, 3), (3, 2)), ((2, 1, 3), (2, 1, 3))):
        call = Call(30 + len(points), points)
        r, dr, dr_formula = Array(H, *taps, draw=call.draw), Array(H, *taps), Array(H, *taps)

        def tap(t, s):
            offsets = [b - a + (n - 1) // 2 for a, b, n in zip(call.positions[t], call.positions[s], taps)]
            return offsets if all(0 <= j < n for j, n in zip(offsets, taps)) else None

        def collect(h, t, s, gradient):
            if tap(t, s):
                dr_formula[h, *tap(t, s)] += gradient

        library.aft_conv(*data(call), r.pointer, call.y.pointer, None)
        library.aft_conv_backward(*data(call), r.pointer, *gradients(call), dr.pointer, None)
        call.check(f"conv on {points}", lambda h, t, s: r[h, *tap(t, s)] if tap(t, s) else 0, collect)
        same(f"conv on {points}: dfilter", dr_formula, dr)


def sparse_conv(library):
    call = Call(41, (T,))
    offsets = [[0, -2], [1, 7]]
    places = (ctypes.c_int32 * (H * 2))(*(x for row in offsets for x in row))
    extents = (ctypes.c_int64 * 2)(H, 2)
    taps = Tensor(ctypes.addressof(places), Device(1, 0), 2, Dtype(0, 32, 1), extents, None, 0)
    values, dvalues, dvalues_formula = Array(H, 2, draw=call.draw), Array(H, 2), Array(H, 2)

    def tap(h, t, s):
        return offsets[h].index(s - t) if s - t in offsets[h] else None

    def collect(h, t, s, gradient):
        if tap(h, t, s) is not None:
            dvalues_formula[h, tap(h, t, s)] += gradient

    library.aft_conv_sparse(*data(call), ctypes.byref(taps), values.pointer, call.y.pointer, None)
    library.aft_conv_sparse_backward(*data(call), ctypes.byref(taps), values.pointer, *gradients(call), dvalues.pointer, None)
    call.check("sparse conv", lambda h, t, s: 0 if tap(h, t, s) is None else values[h, tap(h, t, s)], collect)
    same("sparse conv: dvalues", dvalues_formula, dvalues)


class Slots:
    """Memory of a stream of one operator, of three slots."""

    def __init__(self, library, op, **reach):
        self.library, self.spec = library, StreamSpec(op, Dtype(2, 64, 1), D, HK, **reach)
        size = ctypes.c_int64()
        library.aft_stream_bytes(ctypes.byref(self.spec), ctypes.byref(size))
        self.memory = ctypes.create_string_buffer(SLOTS * size.value + 64)
        aligned = -(-ctypes.addressof(self.memory) // 64) * 64
        self.extents = (ctypes.c_int64 * 2)(SLOTS, size.value)
        self.state = Tensor(aligned, Device(1, 0), 2, Dtype(1, 8, 1), self.extents, None, 0)
        self.stream = Stream(ctypes.pointer(self.spec), ctypes.pointer(self.state))
        library.aft_stream_reset(ctypes.byref(self.stream), -1, None)

    def copy(self, source, target):
        ids = [numbered(source), numbered(target)]
        self.library.aft_stream_copy(ctypes.byref(self.stream), *(ctypes.byref(i[0]) for i in ids), None)

    def expect_positions(self, *expected):
        for slot, position in enumerate(expected):
            came = ctypes.c_int64(-1)
            self.library.aft_stream_position(ctypes.byref(self.stream), slot, ctypes.byref(came), None)
            if came.value != position:
                sys.exit(f"slot {slot} is at position {came.value}, not {position}")


def numbered(*slots):
    """A view of slot ids, with the memory that it is of."""
    memory, extents = (ctypes.c_int32 * len(slots))(*slots), (ctypes.c_int64 * 1)(len(slots))
    return Tensor(ctypes.cast(memory, ctypes.c_void_p), Device(1, 0), 1, Dtype(0, 32, 1), extents, None, 0), memory, extents


def rows_of(array, first, end):
    """Positions of a tensor (B, T, channels), with the memory that they are of."""
    channels = array.shape[-1]
    extents, strides = (ctypes.c_int64 * 3)(B, end - first, channels), (ctypes.c_int64 * 3)(T * channels, channels, 1)
    return Tensor(array.tensor.data, Device(1, 0), 3, Dtype(2, 64, 1), extents, strides, 8 * first * channels), array


def streams(library):
    """Every operator one position at a time after three, from slots 2 and 0; slot 1 is a fork of slot 2."""
    draw, taps = random.Random(60), 3
    w, band, r = Array(H, T, T, draw=draw), Array(H, T, BEFORE + AFTER + 1, draw=draw), Array(H, taps, draw=draw)
    dense, banded = Bias(DENSE, w.pointer, None, None), Bias(BANDED, band.pointer, None, None)
    ids = numbered(2, 0)
    for name, op, reach, bias, bias_of in (
            ("full", 0, {"capacity": T}, (ctypes.byref(dense),), lambda h, t, s: w[h, t, s]),
            ("local", 1, {"before": BEFORE, "after": AFTER}, (ctypes.byref(banded), BEFORE, AFTER),
             lambda h, t, s: band[h, t, s - t + BEFORE] if in_window(t, s) else 0),
            ("simple", 2, {}, (), lambda h, t, s: 0),
            ("conv", 3, {"taps": taps}, (r.pointer,),
             lambda h, t, s: r[h, s - t + taps - 1] if t - taps < s <= t else 0)):
        call, slots = Call(60 + op), Slots(library, op, **reach)
        o = options(causal=1, stream=ctypes.addressof(slots.stream), slot_ids=ctypes.pointer(ids[0]))
        for first, end in ((0, 3), *((t, t + 1) for t in range(3, T))):
            held = [rows_of(x, first, end) for x in (call.q, call.k, call.v, call.y)]
            q, k, v, y = (ctypes.byref(x[0]) for x in held)
            getattr(library, f"aft_{name}")(q, k, v, *bias, y, o)
        slots.copy(2, 1)
        slots.expect_positions(T, T, T)
        expected = Array(B, T, D)
        for b, t, c in itertools.product(range(B), range(T), range(D)):
            seen = [(s, math.exp(call.k[b, s, c * HK // D] + bias_of(c * H // D, t, s))) for s in range(t + 1)]
            average = sum(weight * call.v[b, s, c] for s, weight in seen) / sum(weight for _, weight in seen)
            expected[b, t, c] = call.gates(call.q[b, t, c])[0] * average
        same(f"{name} in a stream: y", expected, call.y)


def reparameterize(library):
    draw, taps = random.Random(40), 5
    r, dout = Array(H, taps, draw=draw), Array(H, taps, draw=draw)
    gain, shift = Array(H, draw=draw), Array(H, draw=draw)
    out, dr, dgain, dshift = Array(H, taps), Array(H, taps), Array(H), Array(H)
    library.aft_reparameterize(r.pointer, gain.pointer, shift.pointer, out.pointer, None)
    library.aft_reparameterize_backward(r.pointer, gain.pointer, shift.pointer, dout.pointer, dr.pointer, dgain.pointer,
                                        dshift.pointer, None)
    expected = [Array(H, taps), Array(H, taps), Array(H), Array(H)]
    for h in range(H):
        row = [r[h, j] for j in range(taps)]
        mean = sum(row) / taps
        deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / (taps - 1))
        z = [(x - mean) / deviation for x in row]
        incoming = [dout[h, j] for j in range(taps)]
        product = sum(a * b for a, b in zip(incoming, z))
        for j in range(taps):
            expected[0][h, j] = gain[h,] * z[j] + shift[h,]
            slope = incoming[j] - sum(incoming) / taps - z[j] * product / (taps - 1)
            expected[1][h, j] = gain[h,] / deviation * slope
        expected[2][h,], expected[3][h,] = product, sum(incoming)
    for what, mine, other in zip(("out", "dr", "dgain", "dshift"), expected, (out, dr, dgain, dshift)):
        same(f"reparameterize: {what}", mine, other)


def sparsity(library):
    draw, taps, tau = random.Random(45), 5, 0.5
    r, noise, dout, spread = (Array(H, taps, draw=draw), Array(H, taps, draw=draw), Array(H, taps, draw=draw),
                              Array(H, draw=draw))
    entropy, slopes, out, dr, hard = Array(H), Array(H, taps), Array(H, taps), Array(H, taps), Array(H, taps)
    library.aft_filter_entropy(r.pointer, entropy.pointer, None)
    library.aft_filter_entropy_backward(r.pointer, spread.pointer, slopes.pointer, None)
    library.aft_gumbel_filter(r.pointer, noise.pointer, ctypes.c_double(tau), out.pointer, None)
    library.aft_gumbel_filter_backward(r.pointer, noise.pointer, ctypes.c_double(tau), dout.pointer, dr.pointer, None)
    library.aft_gumbel_filter_hard(r.pointer, hard.pointer, None)
    expected = [Array(H), Array(H, taps), Array(H, taps), Array(H, taps), Array(H, taps)]
    for h in range(H):
        row = [r[h, j] for j in range(taps)]

        def softmax(logits):
            return [math.exp(x) / sum(math.exp(y) for y in logits) for x in logits]

        p, sample = softmax(row), softmax([(x + noise[h, j]) / tau for j, x in enumerate(row)])
        expected[0][h,] = -sum(x * math.log(x) for x in p)
        products = [dout[h, j] * x for j, x in enumerate(row)]
        for j in range(taps):
            expected[1][h, j] = -spread[h,] * p[j] * (math.log(p[j]) + expected[0][h,])
            expected[2][h, j] = row[j] * sample[j]
            mean = sum(a * b for a, b in zip(sample, products))
            expected[3][h, j] = sample[j] * (dout[h, j] + (products[j] - mean) / tau)
            expected[4][h, j] = row[j] if row[j] == max(row) else 0
    names = ("filter_entropy", "filter_entropy_backward", "gumbel_filter", "gumbel_filter_backward",
             "gumbel_filter_hard")
    for what, mine, other in zip(names, expected, (entropy, slopes, out, dr, hard)):
        same(what, mine, other)


def attention_map(library):
    draw = random.Random(50)
    k, w, out, expected = Array(T, HK, draw=draw), Array(H, T, T, draw=draw), Array(T, T, D), Array(T, T, D)
    bias = Bias(DENSE, w.pointer, None, None)
    library.aft_attention_map(k.pointer, ctypes.byref(bias), out.pointer, None)
    for t, s, c in itertools.product(range(T), range(T), range(D)):
        weights = [math.exp(k[i, c * HK // D] + w[c * H // D, t, i]) for i in range(T)]
        expected[t, s, c] = weights[s] / sum(weights)
    same("attention_map", expected, out)


def errors(library):
    """A refused call says why, in this thread."""
    q, y = Array(T, D), Array(T, D + 1)
    code = library.library.aft_simple(q.pointer, q.pointer, q.pointer, y.pointer, None)
    text = library.library.aft_last_error().decode()
    if code != 1 or text != "aft::simple: argument 'y': expected extent 1 (d) to be 4 as in 'q', got 5":
        sys.exit(f"a wrong call: {code}, {text}")


def main():
    library = Library(sys.argv[1])
    for part in (dense_and_factorized, simple, conv, sparse_conv, streams, reparameterize, sparsity, attention_map, errors):
        part(library)
    print(f"version {library.library.aft_version()}, {library.library.aft_isa().decode()}: every operator as the formulas")


if __name__ == "__main__":
    main()
