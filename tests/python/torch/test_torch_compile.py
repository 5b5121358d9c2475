# SPDX-License-Identifier: Apache-2.0
"""torch.compile without graph breaks and with symbolic sizes, and torch.export."""

import pytest
import rounding
import torch
from tensor_cases import KINDS, OPTIONS, names

import aft
import aft.torch

CASES = [case for case in KINDS if case.name not in ("conv-volume", "full-dense-heads")] + [
    case for case in OPTIONS if case.name in ("full-dense-mask", "full-dense-causal", "local-dense-excluded")]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_one_graph_with_gradients(case):
    """Everything but the generated code: the graph, its gradient's, and symbols in the place of sizes."""
    tensors = case.tensors(requires_grad=True)
    compiled = torch.compile(case.call, backend="aot_eager", fullgraph=True, dynamic=True)
    mine = compiled(*tensors)
    plain = case.call(*tensors)
    assert torch.equal(mine, plain)
    assert all(map(torch.equal, torch.autograd.grad(mine.square().sum(), tensors),
                   torch.autograd.grad(plain.square().sum(), tensors)))


def test_generated_code():
    """With a compiler's code around the op, at two sizes and one compilation."""

    def block(x, u, f):
        h = torch.tanh(aft.torch.full(x * 2, x.transpose(-1, -2).contiguous().transpose(-1, -2), x + 1,
                                      aft.Factorized(u, u), causal=True))
        return aft.torch.conv(h, h, h, f.exp(), gate="silu") + x

    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for B, T in ((3, 7), (4, 9)):
        draw = torch.Generator().manual_seed(T)
        tensors = [torch.randn(shape, generator=draw).requires_grad_() for shape in ((B, T, 8), (T, 5), (2, 6))]
        exact = [x.detach().double().requires_grad_() for x in tensors]
        mine, plain, wide = compiled(*tensors), block(*tensors), block(*exact)
        rounding.expect(mine, wide, plain)
        rounding.expect(*(torch.autograd.grad(y.sum(), x) for y, x in ((mine, tensors), (wide, exact), (plain, tensors))))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_autocast_within_a_graph():
    case = KINDS[0]
    tensors = case.tensors(torch.float32, requires_grad=True)

    def run(*x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return case.call(*x)

    mine = torch.compile(run, backend="aot_eager", fullgraph=True)(*tensors)
    assert mine.dtype == torch.bfloat16 and torch.equal(mine, run(*tensors))


def test_out_within_a_graph():
    q, k, v, w = KINDS[0].tensors()

    def run(q, k, v, w, out):
        return aft.torch.full(q, k, v, w, out=out) * 2

    out = torch.zeros_like(q)
    mine = torch.compile(run, backend="aot_eager", fullgraph=True)(q, k, v, w, out)
    assert torch.equal(out, aft.torch.full(q, k, v, w)) and torch.equal(mine, out * 2)


@pytest.mark.parametrize("layer", [
    lambda: aft.torch.nn.AFTFull(8, 12, rank=2, causal=True),
    lambda: aft.torch.nn.AFTLocal(8, 12, 3, rank=None),
    lambda: aft.torch.nn.AFTConv1d(8, 2, 3),
], ids=["full", "local", "conv"])
def test_export(layer, tmp_path):
    module = layer().eval()
    x = torch.randn(2, 7, 8)
    # Below the layer's 12 positions: PyTorch 2.4 takes a slice of all for another program.
    sizes = {"x": {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("time", min=2, max=11)}}
    with torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes=sizes)
        torch.export.save(program, tmp_path / "layer.pt2")
        loaded = torch.export.load(tmp_path / "layer.pt2").module()
        for shape in ((2, 7, 8), (3, 5, 8)):
            y = torch.randn(shape)
            assert torch.equal(loaded(y), module(y))
    assert any(str(node.target).startswith("aft.") for node in program.graph.nodes)
