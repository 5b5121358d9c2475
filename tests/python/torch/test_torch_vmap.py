# SPDX-License-Identifier: Apache-2.0
"""torch.vmap against a loop of calls."""

import pytest
import rounding
import torch
from tensor_cases import KINDS, names

import aft
import aft.torch

COUNT = 3
pytestmark = pytest.mark.skipif(not hasattr(torch.library, "register_vmap"),
                                reason="PyTorch 2.4 has no vmap for ops that are made in Python")


def mapped_over(case, mapped):
    """Every tensor of the case, with an axis of COUNT in front of those whose places are mapped."""
    several = [case.tensors(seed=i) for i in range(COUNT)]
    tensors = [torch.stack([each[place] for each in several]) if place in mapped else several[0][place]
               for place in range(len(several[0]))]
    return tensors, tuple(0 if place in mapped else None for place in range(len(tensors)))


def one_by_one(call, tensors, dims):
    return torch.stack([call(*(x if dim is None else x.select(dim, i) for x, dim in zip(tensors, dims)))
                        for i in range(COUNT)])


MAPPED = {"data": (0, 1, 2), "queries": (0,), "bias": (3,), "everything": (0, 1, 2, 3, 4)}


@pytest.mark.parametrize("mapped", MAPPED.values(), ids=MAPPED.keys())
@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_results(case, mapped):
    mapped = [place for place in mapped if place < len(case.tensors())] or [0]
    tensors, dims = mapped_over(case, mapped)
    # Other kernels may sum a larger batch: rounding differs.
    rounding.expect(torch.vmap(case.call, dims)(*tensors), one_by_one(case.call, tensors, dims),
                    one_by_one(case.call, rounding.narrowed(tensors), dims))


def test_data_are_one_call(monkeypatch):
    """Mapped data join the batch: the loop would ask for COUNT calls."""
    calls = []
    real = aft._core.forward
    monkeypatch.setattr(aft._core, "forward", lambda *args: calls.append(1) or real(*args))
    tensors, dims = mapped_over(KINDS[0], (0, 1, 2))
    torch.vmap(KINDS[0].call, dims)(*tensors)
    assert len(calls) == 1
    tensors, dims = mapped_over(KINDS[0], (3,))
    torch.vmap(KINDS[0].call, dims)(*tensors)
    assert len(calls) == 1 + COUNT


def test_sequences_without_a_batch_axis():
    q, k, v, w = KINDS[0].tensors()

    def call(q, k, v):
        y, lse = aft.torch.full(q, k, v, w, return_lse=True)
        return y + lse

    assert torch.equal(torch.vmap(call)(q, k, v), torch.stack([call(*x) for x in zip(q, k, v)]))
    # The mapped axis may be any.
    assert torch.equal(torch.vmap(call, 1, 1)(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1),
                       torch.vmap(call)(q, k, v))


def test_lengths_and_masks():
    tensors, dims = mapped_over(KINDS[0], (0, 1, 2))
    lengths = torch.tensor([[5, 3], [1, 2], [0, 5]])
    masks = torch.rand(COUNT, 5, 5, generator=torch.Generator().manual_seed(3)) < 0.7

    def by_lengths(q, k, v, w, n):
        return aft.torch.full(q, k, v, w, key_lengths=n)

    def by_masks(q, k, v, w, m):
        return aft.torch.full(q, k, v, w, mask=m)

    for call, more in ((by_lengths, lengths), (by_masks, masks)):
        assert torch.equal(torch.vmap(call, (*dims, 0))(*tensors, more), one_by_one(call, [*tensors, more], (*dims, 0)))


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_gradients_through_a_mapped_call(case):
    tensors, dims = mapped_over(case, (0, 1, 2))

    def loop(*x):
        return one_by_one(case.call, x, dims)

    rounding.expect(rounding.gradients(torch.vmap(case.call, dims), tensors), rounding.gradients(loop, tensors),
                    rounding.gradients(loop, rounding.narrowed(tensors)))


def test_several_gradients_at_once():
    """is_grads_batched maps the backward op over incoming gradients: with and without those of the bias."""

    def loop(y, wanted, dy):
        several = [torch.autograd.grad(y, wanted, one, retain_graph=True) for one in dy]
        return [torch.stack(each) for each in zip(*several)]

    for case in KINDS:
        tensors = case.tensors(requires_grad=True)
        y = case.call(*tensors)
        dy = torch.randn(COUNT, *y.shape, generator=torch.Generator().manual_seed(4), dtype=y.dtype)
        narrow = rounding.narrowed(tensors)
        for count in (len(tensors), 3):
            mine = torch.autograd.grad(y, tensors[:count], dy, is_grads_batched=True, retain_graph=True)
            rounding.expect(mine, loop(y, tensors[:count], dy), loop(case.call(*narrow), narrow[:count], dy.float()))


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_gradients_of_each_sample(case):
    """torch.func.grad, and that under vmap: data differ, the bias is one, and each sample has a gradient of it."""
    mapped = (0, 1, 2)
    tensors, dims = mapped_over(case, mapped)
    places = tuple(range(len(tensors)))

    def loss(*x):
        return case.call(*x).square().sum()

    mine = torch.vmap(torch.func.grad(loss, argnums=places), dims)(*tensors)
    for i in range(COUNT):
        sample = [x[i] if place in mapped else x for place, x in enumerate(tensors)]
        exact, narrow = (rounding.gradients(case.call, x) for x in (sample, rounding.narrowed(sample)))
        rounding.expect([x[i] for x in mine], exact, narrow)
        rounding.expect(torch.func.grad(loss, argnums=places)(*sample), exact, narrow)


def test_second_derivatives_are_an_error_here_too():
    q, k, v, w = KINDS[0].tensors()
    gradient = torch.func.grad(lambda q: aft.torch.full(q, k, v, w).square().sum())
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.func.grad(lambda q: gradient(q).sum())(q)
    q.requires_grad_()
    with pytest.raises(RuntimeError, match="differentiable once"):
        gradient(q).sum().backward()
