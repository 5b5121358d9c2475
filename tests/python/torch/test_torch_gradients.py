# SPDX-License-Identifier: Apache-2.0
"""What autograd does with the ops: numeric derivatives, one order, what is kept, checkpoints, per-sample use."""

import pytest
import rounding
import torch
from tensor_cases import CASES, KINDS, names
from torch.utils.checkpoint import checkpoint

import aft
import aft.torch


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_numeric_derivatives(case):
    assert torch.autograd.gradcheck(case.call, case.tensors(requires_grad=True), raise_exception=True)


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_numeric_derivatives_that_are_not_saved_for(case):
    """The op alone keeps neither lse nor average, and its backward call sums again."""
    op = getattr(torch.ops.aft, case.operator).default
    assert torch.autograd.gradcheck(lambda *x: op(*case.op_arguments(*x))[0], case.tensors(requires_grad=True))


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_a_second_derivative_is_an_error(case):
    tensors = case.tensors(requires_grad=True)
    gradients = torch.autograd.grad(case.call(*tensors).square().sum(), tensors, create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="differentiable once"):
            torch.autograd.grad(gradient.sum(), tensors, retain_graph=True, allow_unused=True)


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
@pytest.mark.parametrize("left_out", range(4))
def test_only_wanted_gradients_come(case, left_out):
    """Frozen inputs change no other gradient; one factor of two may be frozen."""
    if left_out >= len(case.tensors()):
        left_out = 0
    every = case.tensors(requires_grad=True)
    some = case.tensors(requires_grad=True)
    some[left_out].requires_grad_(False)
    narrow = rounding.narrowed(every)
    for tensors in (every, some, narrow):
        case.call(*tensors).square().sum().backward()
    assert some[left_out].grad is None
    for place, group in enumerate(zip(some, every, narrow)):
        if place != left_out:
            rounding.expect(*(x.grad for x in group))


def test_forward_mode_is_an_error():
    q, k, v, w = KINDS[0].tensors()
    with pytest.raises((RuntimeError, NotImplementedError), match="jvp"):
        torch.func.jvp(lambda q: aft.torch.full(q, k, v, w), (q,), (torch.ones_like(q),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises((RuntimeError, NotImplementedError), match="jvp"):
            aft.torch.full(dual, k, v, w)
        assert torch.equal(aft.torch.full(q, k, v, w), KINDS[0].call(q, k, v, w))


def test_lse_and_average_have_no_gradient():
    q, k, v, w = KINDS[0].tensors(requires_grad=True)
    y, lse, average = aft.torch.full(q, k, v, w, return_lse=True, return_average=True)
    assert y.requires_grad and not lse.requires_grad and not average.requires_grad


def test_a_gradient_of_a_broadcast_result():
    """sum() hands back a gradient of strides 0, which is read as it lies."""
    for case in KINDS:
        tensors = case.tensors(requires_grad=True)
        mine = torch.autograd.grad(case.call(*tensors).sum(), tensors)
        y = case.call(*tensors)
        other = torch.autograd.grad(y, tensors, torch.ones_like(y))
        assert all(map(torch.equal, mine, other))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    for case in KINDS:
        tensors = case.tensors(requires_grad=True)
        checkpoint(case.call, *tensors, use_reentrant=reentrant).square().sum().backward()
        # The recomputed call may keep what the first one did not: other roundings of the same sums.
        rounding.expect([x.grad for x in tensors], rounding.gradients(case.call, tensors),
                        rounding.gradients(case.call, rounding.narrowed(tensors)))


def test_changed_inputs_are_noticed():
    q, k, v, w = KINDS[0].tensors(requires_grad=True)
    y = aft.torch.full(q, k, v, w)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_changes_by_out_are_noticed():
    q, k, v, w = KINDS[0].tensors()
    out = torch.zeros_like(q)
    y = q.requires_grad_() * out
    with torch.no_grad():
        aft.torch.full(q, k, v, w, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        inner = torch.zeros_like(q)
        aft.torch.full(q, k, v, w, out=inner)
        assert torch.equal(inner, out)


def test_repeated_calls_have_the_same_bits():
    """Also where PyTorch fills new memory with NaN, for any number of threads."""
    case = KINDS[0]
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()

    def run():
        tensors = case.tensors(torch.float32, requires_grad=True)
        y = case.call(*tensors)
        return [y, *torch.autograd.grad(y.square().sum(), tensors)]

    plain = run()
    try:
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
        assert all(map(torch.equal, plain, run()))
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)


def test_what_has_no_gradient_says_so():
    q, k, v, w = KINDS[0].tensors(requires_grad=True)
    out = torch.full((2, 5, 4), 7.0).double()
    with pytest.raises(RuntimeError, match="has no gradient"):
        aft.torch.full(q, k, v, w, out=out)
    assert (out == 7).all()
    with torch.no_grad():
        assert aft.torch.full(q, k, v, w, out=out) is out
        assert torch.equal(out, aft.torch.full(q, k, v, w))
