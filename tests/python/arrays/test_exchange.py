# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries come by DLPack and go as they came."""

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import aft
from draws import Draw, case
from exporters import Exporter, Versioned, Whole, capsule_of


@pytest.fixture
def x():
    return Draw(np.float32, "exchange")(2, 5, 4)


@pytest.mark.parametrize("kind", [Exporter, Versioned])
def test_without_an_import_results_are_numpy_arrays(x, kind):
    y = aft.simple(kind(x), kind(x), kind(x))
    assert type(y) is np.ndarray and y.tobytes() == aft.simple(x, x, x).tobytes()


def test_results_go_through_the_library_of_the_queries(x):
    y, lse, average = aft.simple(Whole(x), x, x, return_lse=True, return_average=True)
    assert [type(r) for r in (y, lse, average)] == [Whole] * 3
    assert y.array.tobytes() == aft.simple(x, x, x).tobytes()
    gradients = aft.full_backward(Whole(x), x, x, aft.Factorized(x[0], x[0]), x)
    assert type(gradients[3]) is aft.Factorized
    expected = aft.full_backward(x, x, x, aft.Factorized(x[0], x[0]), x)
    for a, b in zip((*gradients[:3], *gradients[3]), (*expected[:3], *expected[3])):
        assert type(a) is Whole and a.array.tobytes() == b.tobytes()
    assert type(aft.simple(None, Whole(x), x, gate="none")) is Whole
    assert type(aft.simple(x, Whole(x), x)) is np.ndarray


def test_the_package_of_a_type_is_asked(x, monkeypatch):
    """As PyTorch, whose tensors have no namespace: also for a type that somebody has derived."""
    package = type(sys)("some_arrays")
    package.from_dlpack = lambda memory: ("imported", np.from_dlpack(memory))
    monkeypatch.setitem(sys.modules, "some_arrays", package)
    tensor = type("Tensor", (Versioned,), {"__module__": "some_arrays.deep.within"})
    derived = type("Mine", (tensor,), {"__module__": "builtins"})
    for kind in (tensor, derived):
        how, y = aft.simple(kind(x), x, x)
        assert how == "imported" and y.tobytes() == aft.simple(x, x, x).tobytes()


def test_each_array_is_exported_once(x):
    q, k, v = Exporter(x), Versioned(x), Versioned(x)
    aft.simple(q, k, v)
    assert (q.exports, k.exports, v.exports) == (1, 1, 1)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 9)])
def test_capsules_are_consumed(x, version):
    """By the protocol: taken once, and its deleter runs once, after the call."""
    freed = []
    capsule = capsule_of(x, version=version, freed=freed)
    assert aft.simple(x, capsule, x).tobytes() == aft.simple(x, x, x).tobytes()
    assert len(freed) == 1 and "used_dltensor" in repr(capsule)
    with pytest.raises(ValueError, match="argument 'k': expected a DLPack capsule that nobody has used"):
        aft.simple(x, capsule, x)
    del capsule
    gc.collect()
    assert len(freed) == 1


def test_a_capsule_of_a_refused_call_is_freed_as_well(x):
    freed = []
    with pytest.raises(ValueError, match="argument 'v'"):
        aft.simple(x, capsule_of(x, freed=freed), x[:, :, :3])
    assert len(freed) == 1


def test_dlpack_of_another_major_version_is_left_alone(x):
    freed = []
    capsule = capsule_of(x, version=(2, 0), freed=freed)
    with pytest.raises(BufferError, match=r"argument 'k': expected DLPack of version 1, got 2.0"):
        aft.simple(x, capsule, x)
    assert not freed and '"dltensor_versioned"' in repr(capsule)


def test_descriptions_that_are_none(x):
    """Whatever a capsule says of itself, the library judges it before anything is read by it."""
    for change, text in (({"shape": False}, "argument 'k': expected a shape of 3 axes, got a null pointer"),
                         ({"ndim": -2}, "argument 'k': expected 0 to"),
                         ({"lanes": 4}, "argument 'k': expected elements of float"),
                         ({"bits": 8}, "argument 'k': expected elements of float"), ({"code": 9}, "argument 'k'")):
        for call in (lambda k: aft.simple(x, k, x, return_lse=True), lambda k: aft.simple(None, k, x, gate="none"),
                     lambda k: aft.simple_backward(x, k, x, x), lambda k: aft.attention_map(k, x[0])):
            with pytest.raises(ValueError) as raised:
                call(capsule_of(x, **change))
            assert text in str(raised.value)


def test_flags_of_outputs(x):
    for flags, text in ((1, "read-only"), (2, "a copy")):
        freed = []
        with pytest.raises(ValueError, match=f"argument 'out': .*{text}"):
            aft.simple(x, x, x, out=capsule_of(np.empty_like(x), version=(1, 0), flags=flags, freed=freed))
        assert len(freed) == 1
    # What is only read may be either.
    assert aft.simple(x, capsule_of(x, version=(1, 0), flags=3), x).tobytes() == aft.simple(x, x, x).tobytes()


def test_out_of_an_exporter(x):
    out = Versioned(np.zeros_like(x))
    assert aft.simple(x, x, x, out=out) is out and out.array.tobytes() == aft.simple(x, x, x).tobytes()


def test_a_type_error_of_an_exporter_is_its_own(x):
    class Broken(Exporter):
        def __dlpack__(self, **_):
            raise TypeError("no export today")

    with pytest.raises(TypeError, match="no export today"):
        aft.simple(Broken(x), x, x)


def test_out(x):
    y = np.full_like(x, 7)
    assert aft.simple(x, x, x, out=y) is y and y.tobytes() == aft.simple(x, x, x).tobytes()
    in_place = x.copy()
    aft.simple(in_place, x, x, out=in_place)
    assert in_place.tobytes() == y.tobytes()
    y, lse = aft.simple(x, x, x, out=in_place, return_lse=True)
    assert y is in_place and lse.shape == x.shape


def test_gradients_that_are_not_wanted():
    made = case("local", np.float32)
    whole = made.backward()
    for i, gradient in enumerate(whole):
        places = tuple(np.zeros_like(gradient) if i == j else None for j in range(4))
        got = made.backward(out=places)
        assert [g is None for g in got] == [j != i for j in range(4)]
        assert got[i] is places[i] and got[i].tobytes() == gradient.tobytes()


def test_a_gradient_sums_over_what_the_bias_repeats():
    """Where heads share one bias by a stride of 0, its gradient may have one of them."""
    made = case("full", np.float64)
    one = made.problem.bias.w[:1].copy()
    made.problem.bias.w = np.broadcast_to(one, (2, *one.shape[1:]))
    apart = made.backward()[3]
    place = np.zeros_like(one)
    made.backward(out=(None, None, None, place))
    np.testing.assert_allclose(place[0], apart[0] + apart[1], rtol=0, atol=8 * np.spacing(abs(apart).max()))


def memory(shape=(3, 4)):
    """What results are before a library imports them."""
    taken = []

    class Taker(Versioned):
        def __array_namespace__(self):
            return type("", (), {"from_dlpack": staticmethod(lambda m: taken.append(m))})

    x = np.ones((1, *shape), np.float32)
    aft.simple(Taker(x), x, x)
    return taken[0]


def test_memory_is_exported_as_the_standard_says():
    held = memory()
    assert held.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(held.__dlpack__()) and '"dltensor"' in repr(held.__dlpack__(max_version=(0, 8)))
    asked = {"max_version": (1, 0), "dl_device": (1, 0), "copy": False, "stream": None}
    assert '"dltensor_versioned"' in repr(held.__dlpack__(**asked))
    assert '"dltensor_versioned"' in repr(held.__dlpack__(max_version=[1, 0], dl_device=[1, 0]))
    for wrong in (1, (1,), ("one", 0)):
        with pytest.raises(TypeError):
            held.__dlpack__(max_version=wrong)
    for wrong in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 3}):
        with pytest.raises(BufferError):
            held.__dlpack__(**wrong)
    with pytest.raises(TypeError):
        type(held)()


def test_memory_outlives_its_object():
    held = memory()
    expected = np.asarray(held).copy()
    views = [np.from_dlpack(held), np.asarray(held)]
    ends = [weakref.ref(view) for view in views]
    del held
    gc.collect()
    for view in views:
        assert view.ctypes.data % 64 == 0 and view.tobytes() == expected.tobytes()
    assert all(end() is not None for end in ends)


def test_bfloat16_is_known_by_its_name():
    x = Draw(ml_dtypes.bfloat16, "names")(1, 3, 4)
    y, lse = aft.simple(x, x, x, return_lse=True)
    assert y.dtype == ml_dtypes.bfloat16 and lse.dtype == np.float32
    other = x.view("V2")
    with pytest.raises(ValueError, match="argument 'q': expected elements of float, double, half, bfloat16.*void16|V2"):
        aft.simple(other, x, x)
