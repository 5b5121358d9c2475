# SPDX-License-Identifier: Apache-2.0
"""Which stream of a GPU a call is on, who is told it, and what is done when the call returns."""

import ctypes

import numpy as np
import pytest

import aft
from agreement import Judge
from draws import Draw, case
from exporters import capsule_of
from late_arrays import LEGACY, PER_THREAD, Library, blocks, on_device, set_largest_block, stream_of_the_last_call, waits

ONE, TWO = 0x7100, 0x7200


@pytest.fixture
def x():
    return Draw(np.float32, "streams")(2, 5, 4)


@pytest.fixture
def log():
    with waits([]) as made:
        yield made


@pytest.mark.parametrize("current", [ONE, 0, PER_THREAD])
@pytest.mark.parametrize("tells", ["exchange", "package", "interface"])
def test_a_call_is_on_the_current_stream_of_its_library(x, log, tells, current):
    """Whatever says it; then nothing has to be waited for, and memory is let go of in the library's own order."""
    library = Library(current, tells, log)
    y, lse = aft.simple(*[library(x) for _ in range(3)], return_lse=True)
    assert stream_of_the_last_call() == current and library.is_in_order(5)
    assert type(y) is library.Array and type(lse) is library.Array
    assert y.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()
    assert set(log) == {"freed"}
    # In C nobody is told anything; what __dlpack__ is told has DLPack's number for the default stream.
    assert library.told == ([] if tells == "exchange" else [current or LEGACY] * 5)
    assert tells != "exchange" or set(library.asked_for) == {(2, 0)}


def test_a_library_that_names_no_stream(x, log):
    """The default stream, as in C. Nothing is known of the library's own, so that the call is done when it returns."""
    library = Library(ONE, None, log)
    y = aft.simple(library(x), library(x), library(x))
    assert stream_of_the_last_call() == 0 and library.told == [LEGACY] * 4
    assert y.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()
    # Before memory is let go of, which another stream may then write to.
    assert log[0] == ("wait", 0, 0) and set(log[1:]) == {"freed"} and len(log) > 3


@pytest.mark.parametrize("tells", ["exchange", "package", "interface", None])
def test_arrays_of_another_library(x, log, tells):
    first, other = Library(ONE, "package", log), Library(TWO, tells, log)
    y = aft.simple(first(x), other(x), other(x))
    assert stream_of_the_last_call() == ONE and other.is_in_order(2) and first.is_in_order(2)
    assert type(y) is first.Array and y.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()
    # Also in C, where the order has to be asked for.
    assert other.told == [ONE] * 2
    assert log[0] == ("wait", 0, ONE) and set(log[1:]) == {"freed"}


@pytest.mark.parametrize("tells", ["exchange", "package", "interface"])
def test_another_library_on_the_same_stream(x, log, tells):
    first, other = Library(ONE, "package", log), Library(ONE, tells, log)
    aft.simple(first(x), other(x), other(x))
    assert stream_of_the_last_call() == ONE and set(log) == {"freed"}


@pytest.mark.parametrize("tells", ["exchange", "package", "interface", None])
def test_places_of_another_library(x, log, tells):
    """What is written there has to be there: that library reads it on another stream."""
    first, other = Library(ONE, "package", log), Library(TWO, tells, log)
    out = other(np.zeros_like(x))
    assert aft.simple(first(x), first(x), first(x), out=out) is out
    assert stream_of_the_last_call() == ONE and other.is_in_order(1) and log[0] == ("wait", 0, ONE)
    assert out.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()
    log.clear()
    gradients = tuple(other(np.zeros_like(x)) for _ in range(3))
    aft.simple_backward(first(x), first(x), first(x), first(x), out=gradients)
    for got, want in zip(gradients, on_device(aft.simple_backward, x, x, x, x)):
        assert got.array.tobytes() == want.tobytes()
    assert log[0] == ("wait", 0, ONE)


def test_the_first_array_on_the_gpu_decides(x, log):
    """A gate that does not read q does not look where it is."""
    library = Library(ONE, "interface", log)
    out = library(np.zeros_like(x))
    aft.simple(x, library(x), library(x), gate="none", out=out)
    assert stream_of_the_last_call() == ONE and library.is_in_order(3) and set(log) == {"freed"}
    assert out.array.tobytes() == on_device(aft.simple, x, x, x, gate="none").tobytes()


def test_biases_filters_and_options(x, log):
    first, other = Library(ONE, "package", log), Library(TWO, "interface", log)
    w, factors, taps = x[0] @ x[0].T, x[0], np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    mask, lengths = np.arange(5) % 3 != 1, np.array([4, 5], np.int32)
    for call, inputs in ((aft.full, (w,)), (aft.full, (aft.Factorized(factors, factors),)),
                         (aft.local, (aft.Banded(np.ascontiguousarray(w[:, :3])), aft.inclusive(1))), (aft.conv, (taps,))):
        def on(library):
            return [library(a) if isinstance(a, np.ndarray)
                    else a if isinstance(a, aft.Window) else type(a)(*map(library, a)) for a in inputs]

        log.clear()
        other.told.clear()
        options = {"mask": mask, "key_lengths": lengths}
        y = call(*[first(x) for _ in range(3)], *on(other), **{name: other(a) for name, a in options.items()})
        assert stream_of_the_last_call() == ONE and ("wait", 0, ONE) in log
        assert len(other.told) >= 3 and set(other.told) == {ONE}
        assert y.array.tobytes() == call(*[first(x) for _ in range(3)], *on(first), **{
            name: first(a) for name, a in options.items()}).array.tobytes()


def test_offsets_are_the_hosts(log):
    """And memory of the host is told no stream, which NumPy's would refuse."""
    class Host:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, *, stream=None, max_version=None):
            assert stream is None
            return self.array.__dlpack__()

    library, rows = Library(ONE, "interface", log), Draw(np.float32, "packed")(7, 4)
    offsets = np.array([0, 3, 7])
    y = aft.simple(*[library(rows) for _ in range(3)], query_offsets=Host(offsets))
    assert y.array.tobytes() == on_device(aft.simple, rows, rows, rows, query_offsets=offsets).tobytes()
    assert set(log) == {"freed"}


def test_capsules_on_a_gpu(x, log):
    """Of whose library nothing is known."""
    freed = []
    capsules = [capsule_of(x, device=2, freed=freed) for _ in range(3)]
    out = capsule_of(np.zeros_like(x), device=2)
    aft.simple(*capsules, out=out)
    assert stream_of_the_last_call() == 0 and log == [("wait", 0, 0)] and len(freed) == 3


def test_a_stream_that_the_caller_names(x, log):
    """As aft.torch does, having ordered every array to it: nobody waits."""
    out = np.zeros_like(x)
    inputs = [capsule_of(x, device=2) for _ in range(3)]
    aft._core.forward(2, *inputs, None, None, False, "sigmoid", "zero_bias", "automatic", None, None, None, 0, None, None,
                      None, None, 0, TWO, capsule_of(out, device=2), None, None)
    assert stream_of_the_last_call() == TWO and log == [] and out.tobytes() == on_device(aft.simple, x, x, x).tobytes()


def test_another_gpu(x, log):
    """The library refuses it, and an array is not told a stream of a device that is not its own."""
    library = Library(ONE, "interface", log)
    with pytest.raises(ValueError, match="argument 'k': expected memory of CUDA device 0 as 'q' has"):
        aft.simple(library(x), library(x, 1), library(x, 1))
    assert library.told[:3] == [ONE, -1, -1] and ("wait", 0, ONE) not in log
    y = aft.simple(library(x, 1), library(x, 1), library(x, 1))
    assert y.number == 1 and y.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()


def test_managed_memory(x, log):
    """Of any device: the others say where the call is, and without others it is the current one."""
    managed, library = Library(ONE, None, log), Library(TWO, None, log)
    managed.Array.kind = 13
    out = managed(np.zeros_like(x))
    aft.simple(managed(x), managed(x), managed(x), out=out)
    assert log[0] == ("wait", -1, 0) and managed.told == [LEGACY] * 4
    log.clear()
    y = aft.simple(managed(x), library(x, 1), library(x, 1), out=library(np.zeros_like(x), 1))
    assert log[0] == ("wait", 1, 0) and y.array.tobytes() == out.array.tobytes()


def test_exporters_from_before_dlpack_1(x, log):
    """They know the stream, not the version."""
    library = Library(ONE, "package", log)
    library.Array.__dlpack__ = lambda self, stream=None: library.told.append(stream) or self.fill() or self.capsule(None)
    aft.simple(library(x), library(x), library(x))
    assert library.told == [ONE] * 4 and stream_of_the_last_call() == ONE


class Silent:
    """An array on a GPU that does not say so before it is exported."""

    def __init__(self, array, log):
        self.array, self.log = array, log

    def __dlpack__(self, *, stream=None, max_version=None):
        self.log.append(("told", stream))
        return capsule_of(self.array, device=2)


def test_exporters_that_do_not_say_where_they_are(x, log):
    """They are in order on the default stream, and on no other."""
    out = Silent(np.zeros_like(x), log)
    aft.simple(Silent(x, log), Silent(x, log), Silent(x, log), out=out)
    assert log == [("told", None)] * 4 + [("wait", 0, 0)] and stream_of_the_last_call() == 0
    assert out.array.tobytes() == on_device(aft.simple, x, x, x).tobytes()
    library = Library(ONE, "interface", log)
    with pytest.raises(BufferError, match="argument 'k': expected an array with __dlpack_device__"):
        aft.simple(library(x), Silent(x, log), Silent(x, log))
    # On the default stream, which is the library's current one, too.
    library.current = 0
    log.clear()
    aft.simple(library(x), Silent(x, log), library(x))
    assert log[:2] == [("told", None), ("wait", 0, 0)]


def test_devices_that_are_none(x):
    library = Library(ONE, "package")
    for said, error in (((2,), TypeError), ((2, 0.5), TypeError), (7, TypeError)):
        library.Array.__dlpack_device__ = lambda self, said=said: said
        with pytest.raises(error):
            aft.simple(library(x), library(x), library(x))


def test_a_wait_that_fails(x):
    library = Library(ONE, None)
    with waits([], "cudaErrorIllegalAddress (an illegal memory access was encountered)"):
        with pytest.raises(aft.DeviceError, match="^aft::simple: cudaErrorIllegalAddress"):
            aft.simple(library(x), library(x), library(x))


def test_tools(x, log):
    library, r = Library(ONE, "interface", log), np.linspace(-2, 1, 12, dtype=np.float32).reshape(4, 3)
    ones = np.ones(4, np.float32)
    for call, inputs in ((aft.reparameterize, (r, ones, ones)), (aft.filter_entropy, (r,)), (aft.gumbel_filter_hard, (r,)),
                         (aft.attention_map, (x, x[0] @ x[0].T))):
        want = on_device(call, *inputs)
        got = call(*map(library, inputs))
        assert stream_of_the_last_call() == ONE and type(got) is library.Array and got.array.tobytes() == want.tobytes()
    assert set(log) == {"freed"}


@pytest.mark.parametrize("tells", ["exchange", "interface", None])
def test_slots_on_a_gpu(log, tells):
    """The state is an array like any other, and what is done to it is in the library's order."""
    library, made = Library(ONE, tells, log), case("simple", np.float32, causal=True)
    inputs = made.problem.q, made.problem.k, made.problem.v
    slots, length, d = inputs[0].shape
    sizes = {"d": d, "hk": inputs[1].shape[-1], "dtype": "float32"}
    state = library(np.zeros(1, np.uint8))
    state.array, state.late = aligned(slots, aft.Stream.simple(**sizes).state.shape[1]), None
    stream = aft.Stream.simple(**sizes, slots=slots, state=state)
    used = ONE if tells else 0
    stream.reset()
    assert stream_of_the_last_call() == used and stream.state is state
    parts = [aft.simple(*[library(x[:, a:b]) for x in inputs], causal=True, stream=stream)
             for a, b in ((0, 2), (2, length))]
    assert stream_of_the_last_call() == used
    Judge(made.problem).accept("y", np.concatenate([y.array for y in parts], axis=1))
    assert stream.position(1) == length and stream_of_the_last_call() == used
    # Numbers of slots are where the slots are.
    stream.reset(0)
    assert stream.position(0) == 0
    stream.copy(library(np.array([1])), library(np.array([0])))
    assert stream.position(0) == length
    assert (("wait", 0, used) in log) == (tells is None)
    # Slots of one library in a call on another's stream.
    log.clear()
    library.told.clear()
    other = Library(TWO, "interface", log)
    aft.simple(*[other(x[:, :1]) for x in inputs], causal=True, stream=stream)
    assert stream_of_the_last_call() == TWO and library.told == [TWO] and ("wait", 0, TWO) in log


def aligned(rows, columns):
    """Zeros at an address that slots may have."""
    memory = np.zeros(rows * columns + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first:first + rows * columns].reshape(rows, columns)


class Values:
    """As JAX: arrays are made by from_dlpack and never written to."""

    def __init__(self, log, tells=None):
        self.library = Library(ONE, tells, log)
        del self.library.package.empty
        self.library.package.from_dlpack = self.take
        self.stream, self.version = TWO, (1, 0)

    def take(self, memory):
        """By the protocol: the device is asked for, and the memory is told the stream that it is read on."""
        assert memory.__dlpack_device__() == (2, 1)
        version = {} if self.version is None else {"max_version": self.version}
        capsule = memory.__dlpack__(stream=self.stream, **version)
        self.library.log.append("taken")
        return self.library.Array(_contents(capsule, self.version is not None), 1)


def _contents(capsule, versioned):
    """A copy of what a capsule of floats holds. Nobody takes the tensor out, so that it is freed with the capsule."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    # The tensor begins the older struct; four words are before it in the newer one.
    at = get(capsule, b"dltensor_versioned") + 32 if versioned else get(capsule, b"dltensor")
    fields = np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_int64)), (4,))
    data, ndim, shape = int(fields[0]), int(fields[2]) & 0xffffffff, int(fields[3])
    shape = tuple(np.ctypeslib.as_array(ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), (ndim,)))
    assert fields[1] == 2 | 1 << 32, "it is on the second GPU"
    return np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), shape).copy()


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("stream", [None, LEGACY, TWO, -1])
def test_libraries_whose_arrays_are_values(x, log, stream, version):
    """Results are memory of this package's on their GPU, handed over when the call is done."""
    values = Values(log)
    values.stream, values.version = stream, version
    before = blocks()
    y, lse = aft.simple(*[values.library(x, 1) for _ in range(3)], return_lse=True)
    assert type(y) is values.library.Array and type(lse) is values.library.Array
    for got, want in zip((y, lse), on_device(aft.simple, x, x, x, return_lse=True)):
        assert got.late.tobytes() == want.tobytes()
    assert log[0] == ("wait", 1, 0) and log.count("taken") == 2
    # The library of the test has copied them, and nobody else holds any.
    assert blocks() == before
    gradients = aft.simple_backward(*[values.library(x, 1) for _ in range(4)])
    for got, wanted in zip(gradients, on_device(aft.simple_backward, x, x, x, x)):
        np.testing.assert_allclose(got.late, wanted, rtol=1e-4, atol=1e-6)


def test_memory_that_a_library_adopts_is_complete(x, log):
    """Also on the library's own stream: it may read what it imports on any."""
    values = Values(log, "interface")
    y = aft.simple(*[values.library(x, 1) for _ in range(3)])
    assert stream_of_the_last_call() == ONE and log[:2] == [("wait", 1, ONE), "taken"]
    assert y.late.tobytes() == on_device(aft.simple, x, x, x).tobytes()


def test_memory_on_a_gpu_says_so(x):
    taken = []
    values = Values([])
    values.library.package.from_dlpack = lambda memory: taken.append(memory) or memory
    before = blocks()
    held = aft.simple(*[values.library(x, 1) for _ in range(3)])
    assert taken == [held] and held.__dlpack_device__() == (2, 1) and blocks() == before + 1
    for wrong in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            held.__dlpack__(**wrong)
    assert not hasattr(held, "__array_interface__")
    # As long as one tensor lives, and no longer.
    capsule = held.__dlpack__(dl_device=(2, 1))
    taken.clear()
    del held
    assert blocks() == before + 1
    del capsule
    assert blocks() == before


def test_a_gpu_without_memory_left(x):
    values = Values([])
    set_largest_block(x.nbytes - 1)
    try:
        with pytest.raises(MemoryError):
            aft.simple(*[values.library(x, 1) for _ in range(3)])
    finally:
        set_largest_block(2 ** 63)


def test_memory_of_a_gpu_that_is_not_there(x):
    values = Values([])
    values.library.Array.__dlpack_device__ = lambda self: (2, 9)
    values.library.Array.capsule = lambda self, version: capsule_of(self.array, device=2, number=9, version=version)
    with pytest.raises(aft.DeviceError, match="^aft::simple: cudaErrorInvalidDevice"):
        aft.simple(*[values.library(x, 9) for _ in range(3)])
