# SPDX-License-Identifier: Apache-2.0
"""Exported models in ONNX Runtime, in float32: against the formulas in NumPy's float64, and against aft.torch."""

import numpy
import onnx
import onnxruntime
import pytest
import torch
from tensor_cases import CASES, KINDS, names

import aft.torch

# As in test_decompositions: 128 roundings of numbers below 25.
BOUND = 128 * 25 * 2.0 ** -24
# One export takes seconds, nearly all of it the same for a call or for many: the calls of an operator are one model.
OPERATORS = sorted({case.operator for case in CASES})


class Calls(torch.nn.Module):
    """Cases of aft.torch one behind the other, each with its own tensors."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, tensors):
        return [case.call(*mine) for case, mine in zip(self.cases, tensors)]


def nodes(graph):
    """All of a graph and of the graphs within."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from nodes(inner)


def exported(tmp_path, module, args, **options):
    """A function of NumPy arrays that runs what was written."""
    path = tmp_path / "model.onnx"
    aft.torch.onnx.export(module, args, path, **options)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    # Standard operators are those of the domain without a name.
    assert not model.functions and {node.domain for node in nodes(model.graph)} <= {"", "ai.onnx"}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names_of_inputs = [x.name for x in session.get_inputs()]

    def call(*arrays):
        assert len(arrays) == len(names_of_inputs)
        return session.run(None, {name: numpy.asarray(x) for name, x in zip(names_of_inputs, arrays)})

    return call, model


@pytest.mark.parametrize("operator", OPERATORS)
def test_formulas(tmp_path, operator):
    cases = [case for case in CASES if case.operator == operator]
    assert cases, names(CASES)
    tensors = [case.tensors(torch.float32, seed=i) for i, case in enumerate(cases)]
    call, _ = exported(tmp_path, Calls(cases), (tensors,))
    results = call(*(x for mine in tensors for x in mine))
    for case, mine, y in zip(cases, tensors, results):
        numpy.testing.assert_allclose(y, case.expected(*mine)[0], rtol=0, atol=BOUND, err_msg=case.name)


class Full(torch.nn.Module):
    def forward(self, q, k, v, w):
        return aft.torch.full(q, k, v, w, causal=True, return_lse=True)


def test_large_keys(tmp_path):
    """Where e^k is infinite, and where e^(k - largest k) is 0 for all keys that a row's bias does not hide."""
    case = KINDS[0]
    call, model = exported(tmp_path, Full(), tuple(case.tensors(torch.float32)))
    assert any(node.op_type == "If" for node in model.graph.node)
    for scale, shift in ((1, 300), (1, -300), (300, 0)):
        q, k, v, w = case.tensors(torch.float32)
        k, w = k * scale + shift, w * scale
        assert shift <= 0 or k.exp().isinf().all()
        assert scale == 1 or ((k - k.amax(1, keepdim=True)).exp() == 0).any()
        y, lse = call(q, k, v, w)
        want, want_lse, _ = _causal(case).expected(q, k, v, w)
        # k + w is rounded: half a unit of numbers below 2048 moves an exponent, on both sides of a quotient.
        atol = BOUND + 5 * 2 * 2 * 1024 * 2.0 ** -24
        numpy.testing.assert_allclose(y, want, rtol=0, atol=atol)
        numpy.testing.assert_allclose(lse, want_lse, rtol=0, atol=atol)


def _causal(case):
    found = [one for one in CASES if one.name == f"{case.name}-causal"]
    return found[0]


class Model(torch.nn.Module):
    """Layers of each operator, as a user would stack them."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([
            aft.torch.nn.AFTFull(8, 12, heads=2, rank=4, causal=True),
            aft.torch.nn.AFTLocal(8, 12, 3, rank=None),
            aft.torch.nn.AFTSimple(8, causal=True),
            aft.torch.nn.AFTConv1d(8, heads=2, taps=3),
        ])

    def forward(self, x, lengths):
        for layer in self.layers:
            x = x + layer(x, key_lengths=lengths)
        return x


def test_layers_with_another_batch(tmp_path):
    torch.manual_seed(0)
    model = Model()
    batch = torch.export.Dim("batch")
    call, _ = exported(tmp_path, model, (torch.randn(3, 12, 8), torch.tensor([12, 5, 1])),
                       dynamic_shapes=({0: batch}, {0: batch}))
    for lengths in ([12, 5, 1], [4], [7, 12, 12, 2, 9]):
        x = torch.randn(len(lengths), 12, 8)
        with torch.no_grad():
            want = model(x, torch.tensor(lengths))
        # Four layers, whose projections have sums of 8 terms: what one rounds wrong the next ones amplify by less than
        # 2 each, as numbers here stay below 25.
        numpy.testing.assert_allclose(call(x, numpy.array(lengths))[0], want, rtol=0, atol=2 ** 4 * BOUND)


class Refused(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("function, text", [
    (lambda x: aft.torch.simple(x[0], x[0], x[0], query_offsets=torch.tensor([0, 2, 5])), "packed sequences"),
    (lambda x: aft.torch.simple(x, x, x, out=torch.zeros_like(x)), "simple_out.*no decomposition"),
    (lambda x: aft.torch.full(x, x, x, x[0]), "extent -1"),
    (lambda x: aft.torch.simple(x, x, x, outside="excluded"), "'outside': expected the name without a window"),
    (lambda x: aft.torch.simple(x, x, x, first_query=-1), "'first_query': expected 0 or more"),
])
def test_what_has_no_decomposition(tmp_path, function, text):
    with pytest.raises(ValueError, match=text):
        aft.torch.onnx.export(Refused(function), (torch.zeros(2, 5, 4),), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
