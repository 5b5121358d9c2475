# SPDX-License-Identifier: Apache-2.0
"""Calls that go on from a stream: as one call over the whole sequence, however it is cut."""

import pytest
import rounding
import torch

import aft
import aft.torch
from aft.torch import nn

B, T, D = 2, 9, 8
LAYERS = {
    "full": lambda **more: nn.AFTFull(D, 12, rank=3, heads=2, causal=True, **more),
    "full-dense": lambda **more: nn.AFTFull(D, 12, rank=None, causal=True, **more),
    "local": lambda **more: nn.AFTLocal(D, 12, 3, rank=None, causal=True, **more),
    "local-factors": lambda **more: nn.AFTLocal(D, 12, aft.Window(2, 0), rank=2, causal=True, **more),
    "simple": lambda **more: nn.AFTSimple(D, causal=True, **more),
    "conv": lambda **more: nn.AFTConv1d(D, 2, 3, causal=True, **more),
    "without a gate": lambda **more: nn.AFTConv1d(D, 2, 3, causal=True, gate="none", **more),
    "full, without a gate": lambda **more: nn.AFTFull(D, 12, causal=True, gate="none", **more),
    "local, without a gate": lambda **more: nn.AFTLocal(D, 12, 3, causal=True, gate="none", **more),
}


def layer_of(make, dtype=torch.float32):
    torch.manual_seed(0)
    layer = make(dtype=dtype)
    with torch.no_grad():
        for name in layer.position_parameters:
            if getattr(layer, name) is not None:
                getattr(layer, name).normal_()
    return layer


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_steps_are_one_call(make):
    layer = layer_of(make, torch.float64)
    x = torch.randn(B, T, D, dtype=torch.float64)
    whole = layer(x)
    for cuts in ((1,) * T, (4, 1, 4), (T,)):
        stream = layer.stream(B)
        parts = torch.cat([layer.step(part, stream) for part in x.split(cuts, dim=1)], dim=1)
        assert not parts.requires_grad
        # Projections and a row of at most 12 terms each of a few units: well below 1000 roundings.
        torch.testing.assert_close(parts, whole.detach(), rtol=0, atol=1000 * 2.0 ** -53)
        assert [stream.position(slot) for slot in range(B)] == [T, T]


def test_operators_are_bitwise_the_same_for_all_cuts():
    q, k, v = torch.randn(3, B, T, D)
    r = torch.randn(2, 4)
    results = []
    for cuts in ((1,) * T, (2, 7), (T,)):
        stream = aft.Stream.conv(D, D, 4, dtype=torch.float32, slots=B)
        parts = [aft.torch.conv(*x, r, causal=True, stream=stream)
                 for x in zip(*(x.split(cuts, dim=1) for x in (q, k, v)))]
        results.append(torch.cat(parts, dim=1))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    exact = aft.torch.conv(*(x.double() for x in (q, k, v, r)), causal=True)
    rounding.expect(results[0], exact, aft.torch.conv(q, k, v, r, causal=True))


def test_rows_without_q():
    """Those of v, in a stream and where sequences are packed; or the last offset; or those of `out`."""
    k, v = torch.randn(2, 7, D)
    w, sums = torch.randn(12, 12), {"return_lse": True, "return_average": True}
    stream = aft.Stream.full(D, D, 12, dtype=torch.float32)
    out = torch.zeros(1, 7, D)
    made = aft.torch.full(None, k[None], v[None], w, causal=True, gate="none", stream=stream, out=out, **sums)
    whole = aft.torch.full(None, k, v, w[:7, :7], causal=True, gate="none", **sums)
    assert [x.shape for x in made] == [(1, *x.shape) for x in whole]
    exact = aft.torch.full(None, k.double(), v.double(), w[:7, :7].double(), causal=True, gate="none", **sums)
    rounding.expect([x[0] for x in made], exact, whole)
    plain = [x.numpy() for x in (k, v, w)]
    for packed in ([0, 3, 7], torch.tensor([0, 3, 7])):
        got = aft.torch.full(None, k, v, w[:4, :4], gate="none", query_offsets=packed)
        assert got.numpy().tobytes() == aft.full(None, *plain[:2], plain[2][:4, :4], gate="none",
                                                 query_offsets=[0, 3, 7]).tobytes()
    got = aft.torch.simple(None, k, v, gate="none", query_offsets=[0, 2, 4], key_offsets=[0, 3, 7])
    assert got.numpy().tobytes() == aft.simple(None, *plain[:2], gate="none", query_offsets=[0, 2, 4],
                                               key_offsets=[0, 3, 7]).tobytes()
    for wrong in ([0, 3, -1], []):
        with pytest.raises(ValueError, match="query_offsets"):
            aft.torch.simple(None, k, v, gate="none", query_offsets=wrong, key_offsets=[0, 3, 7])


def test_slots_and_lengths():
    layer = layer_of(LAYERS["local"])
    x = torch.randn(B, T, D)
    alone = layer.stream(1)
    expected = layer.step(x[1:], alone)
    stream = layer.stream(4)
    ids = torch.tensor([-1, 2])
    mine = layer.step(x, stream, ids)
    assert torch.equal(mine[1:], expected)
    assert [stream.position(slot) for slot in range(4)] == [0, 0, T, 0]
    stream.copy([2], [3])
    assert torch.equal(layer.step(x[:1, :1], stream, torch.tensor([3])), layer.step(x[:1, :1], alone))


def test_a_saved_state_goes_on():
    layer = layer_of(LAYERS["full"])
    x = torch.randn(1, T, D)
    stream = layer.stream()
    layer.step(x[:, :5], stream)
    assert isinstance(stream.state, torch.Tensor)
    saved = layer.stream_of(dtype=torch.float32, state=stream.state.clone())
    assert torch.equal(layer.step(x[:, 5:], stream), layer.step(x[:, 5:], saved))


def test_a_compiled_step():
    torch._dynamo.reset()
    layer = layer_of(LAYERS["local"])
    x = torch.randn(B, 3, D)
    plain, compiled = layer.stream(B), layer.stream(B)
    step = torch.compile(layer.step, backend="aot_eager", fullgraph=True)
    for t in range(3):
        assert torch.equal(step(x[:, t:t + 1], compiled), layer.step(x[:, t:t + 1], plain))
    assert compiled.position(0) == 3
    assert torch.equal(plain.state, compiled.state)


def test_what_does_not_fit():
    layer = layer_of(LAYERS["full"])
    stream = layer.stream(1)
    layer.step(torch.randn(1, 12, D), stream)
    before = stream.state.clone()
    with pytest.raises(ValueError, match="position|capacity"):
        layer.step(torch.randn(1, 1, D), stream)
    other = layer_of(LAYERS["local"])
    with pytest.raises(ValueError, match="state"):
        other.step(torch.randn(1, 1, D), stream)
    assert torch.equal(stream.state, before)
    with pytest.raises(ValueError, match="causal"):
        nn.AFTSimple(D).stream()
    q = torch.randn(1, 1, D, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no gradient"):
        aft.torch.simple(q, q, q, causal=True, stream=aft.Stream.simple(D, D, dtype=torch.float32))


@torch.no_grad()
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_the_stream_of_a_layer_under_autocast(make):
    """Slots have the type of the weights, and calls that autocast would make of another go on from them."""
    layer = layer_of(make)
    x, stream = torch.randn(B, 4, D), layer.stream(B)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer.step(x, stream)
        q, k, v = (None if p is None else p(x) for p in (layer.query, layer.key, layer.value))
        assert k.dtype == torch.bfloat16
    assert [stream.position(slot) for slot in range(B)] == [4, 4]
    # Projections are autocast's; the operator between them is that of the slots.
    mixed = layer.mix(None if q is None else q.float(), k.float(), v.float(), stream=layer.stream(B))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(y, layer.output(mixed))


def test_a_stream_under_autocast():
    layer = layer_of(LAYERS["simple"])
    x = torch.randn(1, 4, D)
    stream = aft.Stream.simple(D, D, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = torch.cat([layer.step(x[:, t:t + 1], stream) for t in range(4)], dim=1)
        whole = layer(x).detach()
        # Numbers of 8 bits: y is rounded one way or the other, which the projection adds up, and so is the result.
        sizes = layer.output.weight.detach().abs().sum(1) * aft.torch.simple(
            *(p(x) for p in (layer.query, layer.key, layer.value)), causal=True).detach().abs().max() + whole.abs().max()
        assert ((parts - whole).abs() <= 2.0 ** -8 * sizes).all()
