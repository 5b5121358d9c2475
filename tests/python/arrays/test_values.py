# SPDX-License-Identifier: Apache-2.0
"""Every operator, forward and backward, against its definition, in every type."""

import numpy as np
import pytest

import aft
from agreement import BFLOAT16, DTYPES, OPERAND_ROUNDING, Judge
from draws import OPERATORS, case, flat


def check(made, **keywords):
    """All results of a call, forward and both ways backward: from nothing, and from what forward kept."""
    judge = Judge(made.problem)
    y, lse, average = made.forward(return_lse=True, return_average=True, arithmetic="full", **keywords)
    for name, got in (("y", y), ("lse", lse), ("average", average)):
        judge.accept(name, got)
    for name, got in flat(made.backward(arithmetic="full", **keywords)).items():
        judge.accept(name, got)
    told = Judge(made.problem, given_lse=True)
    for name, got in flat(made.backward(lse=lse, average=average, arithmetic="full", **keywords)).items():
        told.accept(name, got)
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator(operator, dtype):
    made = case(operator, dtype)
    y = check(made)
    assert type(y) is np.ndarray and y.dtype == dtype and y.flags.c_contiguous


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_judge_refuses(dtype):
    """One element off by a hundredth of the largest number, or NaN, is seen in every result."""
    made = case("full factorized", dtype)
    judge = Judge(made.problem)
    results = {"y": made.forward(), **flat(made.backward())}
    for name, got in results.items():
        for wrong in (got.reshape(-1)[3] + dtype.type(abs(got).max()) / dtype.type(50), np.nan):
            changed = got.copy()
            changed.reshape(-1)[3] = wrong
            with pytest.raises(AssertionError, match=f"{name}.* is "):
                judge.accept(name, changed)


@pytest.mark.parametrize("operator", OPERATORS)
def test_sizes_that_kernels_have_blocks_for(operator):
    check(case(operator, np.float32, tq=70, tk=70, d=32, hk=32, heads=2))


@pytest.mark.parametrize("operator", OPERATORS)
def test_keys_that_differ_by_hundreds(operator):
    """exp(k) alone would overflow, and exp(k - max) underflow where the bias turns it around."""
    made = case(operator, np.float32, scale=100.0)
    for tensor in made.problem.bias.tensors:
        tensor *= 100
    check(made)


@pytest.mark.parametrize("heads, hk", [(1, 1), (8, 8), (2, 8), (8, 2)])
@pytest.mark.parametrize("operator", ["full", "local banded", "conv"])
def test_heads_and_key_channels(operator, heads, hk):
    made = case(operator, np.float32, heads, hk, heads=heads, hk=hk)
    judge = Judge(made.problem)
    # One key channel would have several lse where it serves several heads: forward calls keep none then.
    judge.accept("y", made.forward())
    for name, got in flat(made.backward()).items():
        judge.accept(name, got)


@pytest.mark.parametrize("operator", ["full", "full factorized", "local", "simple", "conv"])
def test_products_of_bfloat16(operator):
    """What the library may do of its own accord moves y by no more than the documented bound."""
    made = case(operator, BFLOAT16, tq=40, tk=40)
    Judge(made.problem, operand_rounding=OPERAND_ROUNDING).accept("y", made.forward())


def test_a_sparse_filter_is_what_it_is_short_for():
    """Taps of 32 and of 64 bits, gradients to a place, and the dense filter's results."""
    made = case("conv sparse", np.float64)
    p, b = made.problem, made.problem.bias
    dense = np.zeros((*b.values.shape[:1], 5))
    for h, i in np.ndindex(b.values.shape):
        dense[h, b.taps[h, i, 0] + 2] = b.values[h, i]
    dfilter = aft.conv_backward(p.q, p.k, p.v, dense, p.dy)[3]
    for taps in (b.taps[..., 0], b.taps[..., 0].astype(np.int64)):
        sparse = aft.SparseFilter(taps, b.values)
        gradients = aft.conv_backward(p.q, p.k, p.v, sparse, p.dy)
        assert type(gradients[3]) is aft.SparseFilter and gradients[3].taps is taps
        place = np.empty_like(b.values)
        out = (None, None, None, aft.SparseFilter(None, place))
        aft.conv_backward(p.q, p.k, p.v, sparse, p.dy, out=out)
        for h, i in np.ndindex(b.values.shape):
            assert place[h, i] == gradients[3].values[h, i] == dfilter[h, b.taps[h, i, 0] + 2]


@pytest.mark.parametrize("operator", OPERATORS)
def test_bits_do_not_depend_on_threads(operator):
    made = case(operator, np.float32, tq=70, tk=70, d=32, hk=32)
    one, three = made.forward(threads=1), made.forward(threads=3)
    assert one.tobytes() == three.tobytes()
    for a, b in zip(flat(made.backward(threads=1)).values(), flat(made.backward(threads=3)).values()):
        assert a.tobytes() == b.tobytes()
