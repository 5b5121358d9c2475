# SPDX-License-Identifier: Apache-2.0
"""Arrays are read where they lie: any strides give the bits of row-major arrays."""

import numpy as np
import pytest

import aft
from agreement import DTYPES
from draws import Draw, case, flat


def padded(x):
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., :-3] = x
    return wide[..., :-3]


def every_other(x):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def backwards(x):
    return x[..., ::-1].copy()[..., ::-1]


def backwards_everywhere(x):
    at = (slice(None, None, -1),) * x.ndim
    return x[at].copy()[at]


def fortran(x):
    return np.asfortranarray(x)


def transposed(x):
    return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def subclass(x):
    class Named(np.ndarray):
        """An array with a name, as libraries have them."""
    return x.view(Named)


LAYOUTS = [padded, every_other, backwards, backwards_everywhere, fortran, transposed, read_only, subclass]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operator", ["full", "local banded", "simple", "conv"])
def test_strides_of_inputs(operator, dtype, layout):
    made = case(operator, dtype)
    y, gradients = made.forward(), flat(made.backward())
    p = made.problem
    p.q, p.k, p.v, p.dy = (layout(x) for x in (p.q, p.k, p.v, p.dy))
    for name in ("w", "r"):
        if getattr(p.bias, name, None) is not None:
            setattr(p.bias, name, layout(getattr(p.bias, name)))
    got = made.forward()
    assert type(got) is np.ndarray and got.tobytes() == y.tobytes()
    for name, x in flat(made.backward()).items():
        assert x.tobytes() == gradients[name].tobytes(), name


def test_broadcast_inputs():
    draw = Draw(np.float32, "broadcast")
    k, v, w = draw(1, 6, 4), draw(2, 1, 4), draw(1, 6)
    q = np.broadcast_to(np.float32(0.5), (2, 6, 4))
    views = (q, np.broadcast_to(k, (2, 6, 4)), np.broadcast_to(v, (2, 6, 4)), np.broadcast_to(w, (6, 6)))
    copies = tuple(x.copy() for x in views)
    assert aft.full(*views).tobytes() == aft.full(*copies).tobytes()
    for a, b in zip(aft.full_backward(*views, views[2]), aft.full_backward(*copies, copies[2])):
        assert a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("layout", [padded, every_other, backwards, fortran])
def test_strides_of_outputs(layout):
    made = case("full", np.float32)
    y, gradients = made.forward(), made.backward()
    out = layout(np.zeros_like(y))
    assert made.forward(out=out) is out and out.tobytes() == y.tobytes()
    places = tuple(layout(np.zeros_like(x)) for x in gradients)
    for given, came, b in zip(places, made.backward(out=places), gradients):
        assert came is given and given.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)])
def test_nothing(shape):
    """Without batch, positions or channels there is nothing to compute, and that is no error."""
    x = np.zeros(shape, np.float32)
    y, lse, average = aft.simple(x, x, x, return_lse=True, return_average=True)
    assert y.shape == lse.shape == average.shape == shape
    assert [g.shape for g in aft.simple_backward(x, x, x, x)] == [shape] * 3


def test_no_keys():
    q, none = np.ones((2, 3, 4), np.float32), np.zeros((2, 0, 4), np.float32)
    y, lse = aft.simple(q, none, none, return_lse=True)
    assert not y.any() and (lse == -np.inf).all()
    dq, dk, dv = aft.simple_backward(q, none, none, q)
    assert not dq.any() and dk.shape == dv.shape == (2, 0, 4)


def test_without_batch():
    made = case("full", np.float32, batch=1)
    p = made.problem
    flat_call = aft.full(p.q[0], p.k[0], p.v[0], p.bias.w)
    assert flat_call.shape == p.q.shape[1:] and flat_call.tobytes() == made.forward().tobytes()


def test_results_are_row_major_for_any_input():
    made = case("simple", np.float32)
    made.problem.q = fortran(made.problem.q)
    assert made.forward().flags.c_contiguous and made.backward()[0].flags.c_contiguous
