# SPDX-License-Identifier: Apache-2.0
"""Results and gradients against the formulas in NumPy's float64."""

import numpy
import pytest
import torch
from tensor_cases import CASES, D, KINDS, B, names

import aft.torch

# Both sides round every term of sums over at most 12 pairs and 4 channels a few times, and values are below 5: 200
# roundings of numbers below 50 bound it in either.
BOUND = 200 * 50 * 2.0 ** -53
FLOAT_BOUND = 200 * 50 * 2.0 ** -24


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_results(case):
    tensors = case.tensors()
    # Heads that share a key channel have no lse that would be one number for it.
    with_lse = "heads-share-keys" not in case.name
    y, *more = case.call(*tensors, return_lse=with_lse, return_average=True)
    formula_y, formula_lse, formula_average = case.expected(*tensors)
    formulas = (formula_y, formula_lse, formula_average) if with_lse else (formula_y, formula_average)
    for mine, formula in zip((y, *more), formulas):
        assert mine.dtype == torch.float64 and mine.is_contiguous()
        numpy.testing.assert_allclose(mine.numpy(), formula, rtol=0, atol=BOUND)


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
@pytest.mark.parametrize("dtype, bound", [(torch.float64, BOUND), (torch.float32, FLOAT_BOUND)])
def test_gradients(case, dtype, bound):
    tensors = case.tensors(dtype, requires_grad=True)
    y = case.call(*tensors)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    gradients = torch.autograd.grad(y, tensors, dy, allow_unused=True)
    for mine, formula, x in zip(gradients, case.expected_gradients(dy, *tensors), tensors):
        if formula is None:
            assert mine is None or not mine.any()
            continue
        assert mine.shape == x.shape and mine.dtype == dtype
        numpy.testing.assert_allclose(mine.double().numpy(), formula, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype, unit", [(torch.bfloat16, 2.0 ** -8), (torch.float16, 2.0 ** -11)])
@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_short_types(case, dtype, unit):
    """Data of 16 bits: the formulas on the rounded inputs, and one rounding of y, whose terms are below 8."""
    tensors = case.tensors(dtype)
    y = case.call(*tensors, arithmetic="full")
    assert y.dtype == dtype
    numpy.testing.assert_allclose(y.double().numpy(), case.expected(*tensors)[0], rtol=0, atol=8 * unit)


def test_large_keys_are_exact():
    """exp of these overflows and 0 / 0 would follow; the weights are those of the smaller numbers."""
    case = KINDS[0]
    q, k, v, w = case.tensors()
    shift = torch.tensor([0.0, 1000.0, -1000.0, 300.0]).double()
    y = case.call(q, k + shift, v, w)
    # k + shift was rounded to 53 bits of 1000: that much moves an exponent.
    torch.testing.assert_close(y, case.call(q, k, v, w), rtol=0, atol=BOUND + 10 * 1000 * 2.0 ** -52)


def test_without_a_query():
    case = KINDS[0]
    _, k, v, w = case.tensors()
    y, average = aft.torch.full(None, k, v, w, gate="none", return_average=True)
    assert y.shape == (B, 5, D)
    assert torch.equal(y, average)
    assert torch.equal(aft.torch.simple(None, k, v, gate="none"), aft.torch.simple(k, k, v, gate="none"))


def test_packed_sequences_are_separate_calls():
    case = KINDS[0]
    q, k, v, w = (x.requires_grad_() for x in case.tensors())
    offsets = [0, 2, 5]
    y = aft.torch.full(q[0], k[0], v[0], w, query_offsets=offsets)
    parts = [aft.torch.full(q[0, a:b], k[0, a:b], v[0, a:b], w[:b - a, :b - a])
             for a, b in zip(offsets, offsets[1:])]
    assert torch.equal(y, torch.cat(parts))
    dy = torch.randn_like(y)
    together = torch.autograd.grad(y, [q, k, v, w], dy)
    apart = torch.autograd.grad(torch.cat(parts), [q, k, v, w], dy)
    for mine, other in zip(together, apart):
        torch.testing.assert_close(mine, other, rtol=0, atol=BOUND)
