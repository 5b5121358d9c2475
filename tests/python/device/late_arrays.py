# SPDX-License-Identifier: Apache-2.0
"""Libraries with a current stream of their own, and what the emulated device was asked.

Elements of their arrays are NaN until the library has put what it still has to do before another stream, or hands the
array over in C, which orders nothing: whether that was on its own stream is for `Library.is_in_order`.
"""

import contextlib
import ctypes
import sys
import types

import numpy as np

import aft
from agreement import BFLOAT16
from exporters import capsule_of

CODES = {"f": 2, "i": 0, "u": 1, "b": 6}
LEGACY, PER_THREAD = 1, 2
_emulated = ctypes.CDLL(aft._core.__file__)
_emulated.emulated_stream.restype = ctypes.c_size_t
blocks = _emulated.emulated_blocks
_emulated.emulated_largest_block.argtypes = (ctypes.c_size_t,)
set_largest_block = _emulated.emulated_largest_block
_libraries = []
_WAIT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def stream_of_the_last_call():
    return _emulated.emulated_stream()


@contextlib.contextmanager
def waits(log, failure=None):
    """What a call waits for, as ("wait", device, stream) in the log; each wait fails with the text."""
    text = ctypes.create_string_buffer(failure.encode()) if failure else None

    def told(device, stream):
        log.append(("wait", device, stream))
        return ctypes.addressof(text) if text else None

    function = _WAIT(told)
    _emulated.emulated_on_wait(function)
    try:
        yield log
    finally:
        _emulated.emulated_on_wait(_WAIT())


class _Freed(list):
    """Says when memory may be reused."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def append(self, managed):
        self.log.append("freed")


class Library:
    """`tells` says how it shows its stream: "exchange" (DLPack in C), "package" (as PyTorch), "interface" (as CuPy), None."""

    def __init__(self, current, tells, log=None):
        self.current, self.told, self.log = current, [], log if log is not None else []
        self.asked_for = []
        members = {"library": self, "__module__": f"library_{id(self)}.core"}
        if tells == "interface":
            members["__cuda_array_interface__"] = property(
                lambda x: {"version": 3, "stream": self.current or LEGACY, "shape": x.array.shape})
        if tells == "exchange":
            members["__dlpack_c_exchange_api__"] = self._exchange()
        self.Array = type("Array", (Late,), members)
        # Kept: a type is looked up by its module's name, and ids of what is gone come again.
        self.package = sys.modules[f"library_{id(self)}"] = types.ModuleType(f"library_{id(self)}")
        _libraries.append(self)
        if tells == "package":
            self.package.cuda = types.SimpleNamespace(
                current_stream=lambda device: types.SimpleNamespace(cuda_stream=self.current))
        self.package.empty, self.package.float32, self.package.bfloat16 = self.empty, np.dtype("f4"), BFLOAT16

    def __call__(self, array, number=0):
        return self.Array(array, number)

    def empty(self, shape, *, dtype, device):
        return self.Array(np.full(shape, 7, dtype), int(device.split()[1]))

    def is_in_order(self, arrays):
        """Whether a call read that many of its arrays in the library's order: each was told the call's stream, unless that
        is the library's own."""
        used = stream_of_the_last_call()
        return used == self.current or self.told == [used or LEGACY] * arrays

    def _exchange(self):
        """DLPackExchangeAPI, of which only what orders nothing, and the current stream, are there."""

        def to_managed(x, made):
            x.fill()
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
            made[0] = get(x.capsule((1, 0)), b"dltensor_versioned")
            return 0

        def current_stream(kind, number, stream):
            self.asked_for.append((kind, number))
            stream[0] = self.current
            return 0

        pointers = ctypes.POINTER(ctypes.c_void_p)
        self._functions = (ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, pointers)(to_managed),
                           ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, pointers)(current_stream))
        managed, current = (ctypes.cast(function, ctypes.c_void_p).value for function in self._functions)
        # Version 1.3; from its beginning to what makes, imports and lends tensors, which are not there.
        self._table = (ctypes.c_size_t * 7)(1 | 3 << 32, 0, 0, managed, 0, 0, current)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._table), b"dlpack_exchange_api", None)


def on_device(call, *arguments, **options):
    """The elements of what a call gives, on the default stream of the device: its kernels have other bits than the host's."""
    library = Library(0, "exchange")
    there = [library(a) if isinstance(a, np.ndarray) else a for a in arguments]
    made = call(*there, **options)
    return tuple(y.array for y in made) if isinstance(made, tuple) else made.array


class Late:
    """An array whose elements the library has yet to compute."""

    kind = 2  # of a CUDA device; 13: managed

    def __init__(self, array, number=0):
        self.late, self.array = np.ascontiguousarray(array), np.ascontiguousarray(array).copy()
        self.number, self.device = number, f"gpu {number}"
        if self.array.dtype.kind == "f" or self.array.dtype == BFLOAT16:
            self.array[...] = np.nan

    def fill(self):
        if self.late is not None:
            self.array[...] = self.late
            self.late = None

    def capsule(self, version):
        dtype = self.array.dtype
        return capsule_of(self.array, device=self.kind, number=self.number, version=version, bits=8 * dtype.itemsize,
                          code=4 if dtype == BFLOAT16 else CODES[dtype.kind], freed=_Freed(self.library.log))

    def __dlpack_device__(self):
        return self.kind, self.number

    def __dlpack__(self, *, stream=None, max_version=None):
        self.library.told.append(stream)
        # The standard has no 0, and none stands for what the caller could not mean here.
        if stream is not None and stream > 0:
            self.fill()
        return self.capsule(max_version)

    def __array_namespace__(self, *, api_version=None):
        return self.library.package
