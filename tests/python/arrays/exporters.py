# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries, as small as they can be: what they know of each other is DLPack."""

import ctypes
import types

import numpy as np


class Exporter:
    """Exports itself, as a library of before DLPack 1 does, and can do nothing else."""

    def __init__(self, array):
        self.array, self.exports = array, 0

    def __dlpack__(self, stream=None):
        self.exports += 1
        return self.array.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Versioned(Exporter):
    """The same of DLPack 1, whatever the version of NumPy."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.exports += 1
        return capsule_of(self.array, code="iuf".index(self.array.dtype.kind), bits=8 * self.array.itemsize,
                          version=(1, 0) if max_version else None)


class Whole(Versioned):
    """Of a library that follows the array API standard: its namespace imports too."""

    def __array_namespace__(self, *, api_version=None):
        return types.SimpleNamespace(from_dlpack=lambda x: Whole(np.from_dlpack(x)))


class Elsewhere(Exporter):
    """Says that its memory is on a GPU, in a capsule that is made by hand."""

    def __init__(self, array, device):
        super().__init__(array)
        self.device = device

    def __dlpack__(self, **_):
        return capsule_of(self.array, device=self.device)


def capsule_of(array, device=1, number=0, code=2, bits=32, lanes=1, version=None, flags=0, freed=None,
               ndim=None, shape=True):
    """A capsule whose description says what it is told to; `freed` collects the calls of its deleter."""
    assert array.flags.c_contiguous
    managed = _Versioned() if version else _Managed()
    tensor = managed.tensor
    extents = (ctypes.c_int64 * array.ndim)(*array.shape)
    tensor.data, tensor.device[:], tensor.ndim = array.ctypes.data, (device, number), array.ndim if ndim is None else ndim
    tensor.code, tensor.bits, tensor.lanes = code, bits, lanes
    tensor.shape = ctypes.cast(extents, ctypes.c_void_p) if shape else None

    def delete(_):
        if freed is not None:
            freed.append(managed)
        _alive.pop(id(managed))

    deleter = _DELETER(delete)
    managed.deleter = ctypes.cast(deleter, ctypes.c_void_p)
    if version:
        managed.version[:] = version
        managed.flags = flags
    _alive[id(managed)] = managed, extents, deleter, array
    name = b"dltensor_versioned" if version else b"dltensor"
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), name, None)


def _structs():
    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]

    class Managed(ctypes.Structure):
        _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    class VersionedTensor(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                    ("flags", ctypes.c_uint64), ("tensor", Tensor)]

    # PYFUNCTYPE: the deleter is called with the lock held.
    return Managed, VersionedTensor, ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


_Managed, _Versioned, _DELETER = _structs()
_alive = {}
