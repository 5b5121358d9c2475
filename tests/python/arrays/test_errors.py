# SPDX-License-Identifier: Apache-2.0
"""What does not fit is refused with a text that says what was expected and what came, before anything is written."""

import subprocess
import sys

import numpy as np
import pytest

import aft
from draws import OPERATORS, Draw, case
from exporters import Elsewhere

X = Draw(np.float32, "errors")(2, 5, 4)
W = Draw(np.float32, "bias")(2, 5, 5)


def byte_steps(x):
    """Rows that begin in the middle of an element."""
    raw = np.zeros((x.shape[0], x.shape[1], x.shape[2] * x.itemsize + 1), np.uint8)
    return np.ndarray(x.shape, x.dtype, raw, 0, (raw.strides[0], raw.strides[1], x.itemsize))


CASES = {
    "rank": (lambda: aft.simple(X[None], X, X), ValueError, "aft::simple: argument 'q': expected rank 2 or 3, got 4"),
    "channels": (lambda: aft.simple(X, X, X[:, :, :3]), ValueError,
                 "aft::simple: argument 'v': expected extent 2 (d) to be 4 as in 'q', got 3"),
    "batch": (lambda: aft.simple(X, X[:1], X), ValueError, "aft::simple: argument 'k': expected extent 0 (B) to be 2"),
    "heads": (lambda: aft.full(X, X, X, np.zeros((3, 5, 5), np.float32)), ValueError,
              "aft::full: argument 'w' of bias"),
    "type of data": (lambda: aft.simple(X, X.astype(np.float64), X), ValueError,
                     "aft::simple: argument 'k': expected elements of float as 'v' has, got double"),
    "integers": (lambda: aft.simple(*[X.astype(np.int64)] * 3), ValueError,
                 "aft::simple: argument 'v': expected elements of float, double, half or bfloat16"),
    "complex": (lambda: aft.simple(X, X, X.astype(np.complex64)), ValueError,
                "argument 'v': expected elements of float"),
    "text": (lambda: aft.simple(X, X, np.full(X.shape, "a")), ValueError, "argument 'v': expected elements of float"),
    "type of a bias": (lambda: aft.full(X, X, X, W.astype(np.float64)), ValueError,
                       "aft::full: argument 'w' of bias: expected elements of float as the data has, got double"),
    "factors": (lambda: aft.full(X, X, X, aft.Factorized(W[:, :, :3], W[:, :, :2])), ValueError, "of bias"),
    "band of full": (lambda: aft.full(X, X, X, aft.Banded(W[:, :, :3])), ValueError,
                     "a call without a window has no band"),
    "width of a band": (lambda: aft.local(X, X, X, aft.Banded(W[:, :, :4]), (1, 1)), ValueError,
                        "argument 'w' of bias"),
    "window": (lambda: aft.local(X, X, X, W, aft.Window(-3, 1)), ValueError, "window"),
    "filter": (lambda: aft.conv(X, X, X, X[0, 0]), ValueError, "argument 'filter'"),
    "causal grid": (lambda: aft.conv(X[None], X[None], X[None], W[:, :3, :3], causal=True), ValueError, "causal"),
    "outside of full": (lambda: aft.full(X, X, X, W, outside="excluded"), ValueError, "outside"),
    "out": (lambda: aft.simple(X, X, X, out=np.empty((2, 5, 3), np.float32)), ValueError,
            "aft::simple: argument 'y': expected extent 2 (d) to be 4 as in 'q', got 3"),
    "type of out": (lambda: aft.simple(X, X, X, out=np.empty(X.shape)), ValueError,
                    "argument 'y': expected elements of float"),
    "overlap": (lambda: aft.simple(X, X, X, out=X), ValueError, "argument 'y'"),
    "mask": (lambda: aft.simple(X, X, X, mask=np.ones((3, 5), bool)), ValueError, "argument 'mask'"),
    "type of mask": (lambda: aft.simple(X, X, X, mask=np.ones(5, np.int32)), ValueError, "argument 'mask'"),
    "lengths": (lambda: aft.simple(X, X, X, key_lengths=[1, 2, 3]), ValueError, "argument 'key_lengths'"),
    "type of lengths": (lambda: aft.simple(X, X, X, key_lengths=np.ones(2)), ValueError, "argument 'key_lengths'"),
    "offsets": (lambda: aft.simple(X[0], X[0], X[0], query_offsets=[0, 3]), ValueError, "argument 'query_offsets'"),
    "first_query": (lambda: aft.simple(X, X, X, first_query=-1), ValueError, "first_query"),
    "threads": (lambda: aft.simple(X, X, X, threads=-1), ValueError, "threads"),
    "half an lse": (lambda: aft.simple_backward(X, X, X, X, lse=X), ValueError, "average"),
    "no queries": (lambda: aft.simple(None, X, X), ValueError, "aft::simple: argument 'q': expected a tensor"),
    "no keys": (lambda: aft.simple(X, None, X), ValueError, "aft::simple: argument 'k': expected a tensor"),
    "no values": (lambda: aft.simple(X, X, None), ValueError, "aft::simple: argument 'v': expected a tensor"),
    "no bias": (lambda: aft.full(X, X, X, None), ValueError, "argument 'w' of bias: expected a tensor"),
    "gradient": (lambda: aft.simple_backward(X, X, X, X[:, :4]), ValueError, "argument 'dy'"),
    "kind of dbias": (lambda: aft.full_backward(X, X, X, W, X, out=(None, None, None, aft.Factorized(W, W))),
                      ValueError, "aft::full_backward: argument 'dbias': expected kind AFT_DENSE as 'bias' has"),
    "kind of dfilter": (lambda: aft.conv_backward(X, X, X, W[0, :4], X, out=(None, None, None, aft.SparseFilter(None, W[0, :4].copy()))),
                        ValueError, "argument 'dfilter': expected an array as 'filter' is one, got an aft.SparseFilter"),
    "a place that is none": (lambda: aft.full_backward(X, X, X, aft.Factorized(W[0], W[0]), X,
                                                       out=(None, None, None, aft.Factorized(True, W[0].copy()))),
                             TypeError, "argument 'dbias.u': expected an array"),
    "no taps": (lambda: aft.conv(X, X, X, aft.SparseFilter(None, W[0])), ValueError,
                "aft::conv: argument 'filter.taps': expected an array of int32 or int64, got None"),
    "truth": (lambda: aft.simple(X, X, X, causal=np.zeros(2)), ValueError, "argument 'causal': expected True or False"),
    "tau": (lambda: aft.gumbel_filter(W[0], W[0], 10 ** 400), ValueError, "argument 'tau'"),
    "number of places": (lambda: aft.full_backward(X, X, X, W, X, out=(None, None, None)), ValueError,
                         "aft::full_backward: argument 'out': expected a tuple of 4"),
    "bytes": (lambda: aft.simple(byte_steps(X), X, X), ValueError,
              "aft::simple: argument 'q': expected strides of whole elements, multiples of 4 bytes, got"),
    "byte order": (lambda: aft.simple(X, X.astype(X.dtype.newbyteorder()), X), ValueError,
                   "aft::simple: argument 'k': expected elements in the byte order of this machine"),
    "alignment": (lambda: aft.simple(X, X, np.frombuffer(bytearray(161), np.float32, 40, 1).reshape(2, 5, 4)),
                  ValueError, "argument 'v': expected data + byte_offset to be a multiple of 4 bytes"),
    "read-only": (lambda: aft.simple(X, X, X, out=np.broadcast_to(X, X.shape)), ValueError,
                  "aft::simple: argument 'out': expected memory that may be written, got a read-only array"),
    "gate": (lambda: aft.simple(X, X, X, gate="softmax"), ValueError,
             "aft::simple: argument 'gate': expected one of 'sigmoid', 'none', 'identity', 'relu', 'tanh', 'silu', "
             "got 'softmax'"),
    "gate of a gradient": (lambda: aft.full_backward(X, X, X, W, X, gate=None), ValueError,
                           "aft::full_backward: argument 'gate': expected one of 'sigmoid', "),
    "name of outside": (lambda: aft.simple(X, X, X, outside=0), ValueError,
                        "aft::simple: argument 'outside': expected one of 'zero_bias', 'excluded', got 0"),
    "arithmetic": (lambda: aft.simple(X, X, X, arithmetic="exact"), ValueError,
                   "aft::simple: argument 'arithmetic': expected one of 'automatic', 'full', got 'exact'"),
    "no array": (lambda: aft.simple(X, [[1.0]], X), TypeError,
                 "aft::simple: argument 'k': expected an array of NumPy's, or one with __dlpack__, got list"),
    "no window": (lambda: aft.local(X, X, X, W, 3), TypeError,
                  "aft::local: argument 'window': expected an aft.Window, got 3"),
    "no number": (lambda: aft.simple(X, X, X, first_query=0.5), TypeError,
                  "aft::simple: argument 'first_query': expected a whole number, got 0.5"),
    "large number": (lambda: aft.simple(X, X, X, first_query=2 ** 64), ValueError, "a number of 64 bits"),
    "no lengths": (lambda: aft.simple(X, X, X, key_lengths=[1, "2"]), TypeError,
                   "aft::simple: argument 'key_lengths': expected a whole number, got '2'"),
    "keyword": (lambda: aft.simple(X, X, X, casual=True), TypeError, "casual"),
    "many axes": (lambda: aft.simple(np.zeros((1,) * 12, np.float32), X, X), ValueError, "argument 'q': expected 0 to"),
    "no axes": (lambda: aft.simple(np.float32(1)[()].reshape(()), X, X), ValueError,
                "argument 'q': expected rank 2 or 3, got 0"),
    "gain": (lambda: aft.reparameterize(X[0], X[0, 0], X[0, 0]), ValueError, "aft::reparameterize: argument 'gain'"),
    "channels of a map": (lambda: aft.attention_map(X, W, channels=3), ValueError,
                          "aft::attention_map: argument 'out'"),
    "no channels": (lambda: aft.attention_map(X, W, channels=-4), ValueError,
                    "argument 'channels': expected 0 or more"),
}


@pytest.mark.parametrize("name", CASES)
def test_texts(name):
    call, error, text = CASES[name]
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value) and type(raised.value) is error


@pytest.mark.parametrize("device", [2, 10])
def test_devices(device):
    """Memory that is elsewhere is never touched: the address here is nobody's."""
    error, text = (aft.DeviceError, "built without CUDA") if device == 2 else (ValueError, "device_type 10")
    with pytest.raises(error, match=text):
        aft.simple(X, Elsewhere(X, device), X)
    with pytest.raises(error, match=text):
        aft.simple(Elsewhere(X, device), Elsewhere(X, device), Elsewhere(X, device))
    assert issubclass(aft.DeviceError, RuntimeError)


@pytest.mark.parametrize("operator", OPERATORS)
def test_nothing_is_written(operator):
    made = case(operator, np.float32)
    y, gradients = made.forward(), made.backward()
    out = np.full_like(y, 7)
    with pytest.raises(ValueError):
        made.forward(out=out, threads=-1)
    assert (out == 7).all()
    places = [np.full_like(made.problem.q, 7) for _ in gradients]
    with pytest.raises(ValueError):
        made.backward(out=(*(p.reshape(g.shape) if p.size == g.size else p for p, g in zip(places[:3], gradients[:3])),
                           *(() if operator == "simple" else (np.full((1, 1, 1), 7, np.float32),))), threads=-1)
    assert all((place == 7).all() for place in places)


def test_no_memory():
    """A result that no machine holds, of inputs that take none."""
    huge = np.broadcast_to(np.float32(0), (2 ** 20, 2 ** 20, 64))
    with pytest.raises(MemoryError):
        aft.simple(huge, huge, huge)


def test_references_are_given_back():
    """A call that fails anywhere on its way holds nothing of its arguments."""
    import sys

    arguments = [X.copy(), X.copy(), X.copy()]
    before = [sys.getrefcount(x) for x in arguments]
    for call, error, _ in CASES.values():
        with pytest.raises(error):
            call()
    for _ in range(50):
        y = aft.full(*arguments, W, return_lse=True)
        aft.full_backward(*arguments, aft.Factorized(W, W), arguments[0], out=None)
        with pytest.raises(ValueError):
            aft.simple(*arguments, out=y[0][:, :2])
    assert [sys.getrefcount(x) for x in arguments] == before


def test_flags_may_be_of_numpy():
    y, lse, average = aft.simple(X, X, X, return_lse=np.True_, return_average=1)
    assert lse.shape == average.shape == y.shape
    assert aft.simple(X, X, X, return_lse=np.False_).shape == X.shape


ANOTHER_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import aft
run = getattr(interpreters, "run_string", None) or interpreters.exec
code = "import sys; sys.path[:] = %r\\ntry:\\n    import aft\\nexcept ImportError as e:\\n    print(e, flush=True)" % (sys.path,)
other = interpreters.create()
run(other, code)
interpreters.destroy(other)
error = aft.DeviceError
for name in [name for name in sys.modules if name.split(".")[0] == "aft"]:
    del sys.modules[name]
import aft
assert aft.DeviceError is error
print(aft.isa())
"""


def test_one_interpreter_of_a_process():
    """Another one is told so when it imports, and not by what its classes are not. The first may import it anew."""
    done = subprocess.run([sys.executable, "-c", ANOTHER_INTERPRETER], capture_output=True, text=True, check=True)
    assert "aft has been imported by another interpreter of this process" in done.stdout
    assert done.stdout.split()[-1] == aft.isa()
