# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own checks of an op: its schema, its autograd, its fake kernel, its compilation with symbolic shapes."""

import pytest
import torch
from tensor_cases import KINDS, names
from torch.library import opcheck

import aft
import aft.torch


def op_of(case, role=""):
    return getattr(torch.ops.aft, case.operator + role).default


def all_pass(results):
    assert len(results) == 4
    assert all(verdict == "SUCCESS" for verdict in results.values()), results


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_forward(case):
    arguments = case.op_arguments(*case.tensors(requires_grad=True))
    saves = {"return_lse": True, "return_average": True}
    all_pass(opcheck(op_of(case), arguments, saves))


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_backward(case):
    tensors = case.tensors()
    q, k, v, *_ = tensors
    arguments = case.op_arguments(*tensors)
    wanted = [isinstance(x, torch.Tensor) for x in arguments if x is None or isinstance(x, torch.Tensor)]
    _, lse, average = op_of(case)(*arguments, return_lse=True, return_average=True)
    all_pass(opcheck(op_of(case, "_backward"), (*arguments, torch.randn_like(q), wanted),
                     {"lse": lse, "average": average}))


@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_into_memory_of_the_caller(case):
    q, *rest = case.tensors()
    all_pass(opcheck(op_of(case, "_out"), case.op_arguments(q, *rest), {"out": torch.zeros_like(q)}))


def test_into_slots():
    q = torch.randn(2, 3, 8)
    for layer, bias in ((aft.torch.nn.AFTSimple(8, causal=True), ()),
                        (aft.torch.nn.AFTConv1d(8, 8, 2, causal=True), (torch.ones(2, 2),)),
                        (aft.torch.nn.AFTLocal(8, 9, 2, causal=True), ("dense", torch.ones(9, 9), None, None, 1, 1)),
                        (aft.torch.nn.AFTFull(8, 9, causal=True), ("dense", torch.ones(9, 9), None, None))):
        op = getattr(torch.ops.aft, type(layer).__name__[3:].lower().replace("1d", "") + "_out").default
        state = layer.stream(2).state
        all_pass(opcheck(op, (q, q, q, *bias), {"causal": True, "state": state, "capacity": 9}))


def test_masks_lengths_and_defaults():
    case = KINDS[0]
    arguments = case.op_arguments(*case.tensors(requires_grad=True))
    all_pass(opcheck(op_of(case), arguments, {"mask": torch.ones(5, dtype=torch.bool), "causal": True,
                                              "key_lengths": torch.tensor([5, 3]), "gate": "tanh"}))
    all_pass(opcheck(op_of(case), arguments))


@pytest.mark.parametrize("kind, w, u, x", [("dense", 0, 1, 1), ("factorized", 1, 0, 0), ("factorized", 0, 1, 0),
                                           ("banded", 0, 0, 0), ("square", 1, 0, 0)])
def test_biases_that_are_none(kind, w, u, x):
    q = torch.ones(2, 5, 4)
    tensors = [torch.ones(5, 5) if given else None for given in (w, u, x)]
    with pytest.raises(ValueError, match="'kind'"):
        torch.ops.aft.full(q, q, q, kind, *tensors)


def test_results_that_nobody_asked_for_are_empty():
    case = KINDS[0]
    y, lse, average = op_of(case)(*case.op_arguments(*case.tensors()))
    assert y.shape == (2, 5, 4) and lse.numel() == 0 and average.numel() == 0


def test_gradients_that_nobody_asked_for_are_empty():
    case = KINDS[0]
    tensors = case.tensors()
    wanted = [False, True, False, True, False, False]
    all_gradients = op_of(case, "_backward")(*case.op_arguments(*tensors), tensors[0], [True] * 4 + [False] * 2)
    gradients = op_of(case, "_backward")(*case.op_arguments(*tensors), tensors[0], wanted)
    for gradient, want, other in zip(gradients, wanted, all_gradients):
        assert torch.equal(gradient, other) if want else gradient.numel() == 0
