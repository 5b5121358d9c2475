# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU come by DLPack, and results are arrays of their library on the same GPU. The extension here is built
on the emulated device, whose memory is the host's; the library is as small as it can be."""

import sys
import types

import numpy as np
import pytest

import aft
from agreement import BFLOAT16, Judge
from draws import OPERATORS, Draw, case, flat
from exporters import capsule_of

CODES = {"f": 2, "i": 0, "u": 1, "b": 6}
asked = []


class Gpu:
    """An array on the first of two GPUs."""

    def __init__(self, array, number=0):
        self.array, self.number, self.device = array, number, f"gpu {number}"

    def __dlpack__(self, **_):
        dtype = self.array.dtype
        return capsule_of(self.array, device=2, number=self.number, version=(1, 0), bits=8 * dtype.itemsize,
                          code=4 if dtype == BFLOAT16 else CODES[dtype.kind])


class Standard(Gpu):
    """Of a library with an array namespace, as the array API standard has it."""

    def __array_namespace__(self, *, api_version=None):
        return types.SimpleNamespace(empty=empty, float32=np.dtype("f4"), float64=np.dtype("f8"),
                                     float16=np.dtype("f2"), bfloat16=BFLOAT16)


def empty(shape, *, dtype=None, device=None):
    asked.append((shape, dtype, device))
    return Standard(np.full(shape, 7, dtype), int(device.split()[1]))


def there(x, kind=Standard):
    """The same argument with every array of it on the GPU."""
    if isinstance(x, np.ndarray):
        return kind(np.ascontiguousarray(x))
    if isinstance(x, aft.Window):
        return x
    return type(x)(*(there(part, kind) for part in x)) if isinstance(x, tuple) else x


def calls(made, kind=Standard):
    """Forward and backward of a case on the GPU, as functions of more keywords."""
    p = made.problem
    inputs = [there(made.shaped(x), kind) for x in (p.q, p.k, p.v)] + [there(x, kind) for x in made.operands()]
    options = {name: there(x, kind) for name, x in made.options().items()}
    forward, backward = getattr(aft, made.function), getattr(aft, f"{made.function}_backward")
    return (lambda **more: forward(*inputs, **options, **more),
            lambda **more: backward(*inputs, there(made.shaped(p.dy), kind), **options, **more))


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16], ids=str)
@pytest.mark.parametrize("operator", [name for name in OPERATORS if "sparse" not in name])  # those are for the host
def test_results_are_made_beside_the_queries(operator, dtype):
    made = case(operator, dtype)
    forward, backward = calls(made)
    asked.clear()
    judge = Judge(made.problem)
    y, lse, average = forward(return_lse=True, return_average=True, arithmetic="full")
    for name, got in (("y", y), ("lse", lse), ("average", average)):
        assert type(got) is Standard
        judge.accept(name, got.array)
    sums = np.dtype("f8" if dtype == np.float64 else "f4")
    assert [(type_, device) for _, type_, device in asked] == [(dtype, "gpu 0"), (sums, "gpu 0"), (sums, "gpu 0")]
    for name, got in flat(backward(arithmetic="full")).items():
        assert type(got) is Standard
        judge.accept(name, got.array)


@pytest.fixture
def x():
    return Draw(np.float32, "device")(2, 5, 4)


def test_functions_that_know_no_device(x, monkeypatch):
    """As CuPy's main namespace, which makes arrays on the current GPU; asked of the package of the type."""
    package = type(np)("old_arrays")
    package.float32 = np.dtype("f4")
    package.empty = lambda shape, dtype: kind(np.empty(shape, dtype), current)
    monkeypatch.setitem(sys.modules, "old_arrays", package)
    kind, current = type("Array", (Gpu,), {"__module__": "old_arrays.core"}), 0
    y = aft.simple(kind(x), kind(x), kind(x))
    assert type(y) is kind and y.array.tobytes() == aft.simple(*[Standard(x)] * 3).array.tobytes()
    # What is on another GPU by then is refused, and nothing is written anywhere.
    current = 1
    with pytest.raises(ValueError, match="device"):
        aft.simple(kind(x), kind(x), kind(x))


@pytest.mark.parametrize("module", ["nobody", "jax", "jaxlib.thing"])
def test_libraries_that_make_none_need_a_place(x, monkeypatch, module):
    """One that neither makes nor imports arrays: the result's memory is then the caller's."""
    package = type(np)(module.split(".")[0])
    if module != "nobody":
        package.empty, package.float32 = empty, np.dtype("f4")
    monkeypatch.setitem(sys.modules, package.__name__, package)
    kind = type("Array", (Gpu,), {"__module__": module})
    asked.clear()
    with pytest.raises(ValueError, match="argument 'y'.*host"):
        aft.simple(kind(x), kind(x), kind(x))
    place = Gpu(np.full_like(x, 7))
    assert aft.simple(kind(x), kind(x), kind(x), out=place) is place and not asked
    assert place.array.tobytes() == aft.simple(*[Standard(x)] * 3).array.tobytes()
    if module != "nobody":
        with pytest.raises(ValueError, match="argument 'out': expected memory that may be written, got a read-only array"):
            aft.simple(kind(x), kind(x), kind(x), out=kind(x))
        # What it imports it may keep as a value; `empty` would make one that is written afterwards.
        asked.clear()
        package.from_dlpack = lambda memory: ("imported", memory.__dlpack_device__())
        assert aft.simple(kind(x), kind(x), kind(x)) == ("imported", (2, 0)) and not asked
