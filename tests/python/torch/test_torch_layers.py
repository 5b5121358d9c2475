# SPDX-License-Identifier: Apache-2.0
"""aft.torch.nn: what layers compute, where they begin, how they are copied and saved, and groups for an optimizer."""

import copy
import io
import math

import pytest
import rounding
import torch

import aft
import aft.torch
from aft.torch import nn

B, T, D = 2, 7, 8
LAYERS = {
    "full": lambda **more: nn.AFTFull(D, 12, rank=3, heads=2, **more),
    "full-dense": lambda **more: nn.AFTFull(D, 12, rank=None, **more),
    "local": lambda **more: nn.AFTLocal(D, 12, 3, rank=2, **more),
    "local-banded": lambda **more: nn.AFTLocal(D, 12, aft.Window(1, 2), rank=None, **more),
    "simple": lambda **more: nn.AFTSimple(D, **more),
    "conv1d": lambda **more: nn.AFTConv1d(D, 2, 3, **more),
    "conv2d": lambda **more: nn.AFTConv2d(D, 2, (3, 2), **more),
}


def input_of(name, dtype=torch.float32):
    return torch.randn(B, 3, 4, D, dtype=dtype) if name == "conv2d" else torch.randn(B, T, D, dtype=dtype)


def by_hand(name, layer, x):
    """The layer as its operator between its projections, with pairs written out where they can be."""
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    if name == "full":
        y = aft.torch.full(q, k, v, layer.bias_u[:, :T] @ layer.bias_x[:, :T].mT)
    elif name == "full-dense":
        y = aft.torch.full(q, k, v, layer.bias_w[0, :T, :T])
    elif name == "local":
        y = aft.torch.local(q, k, v, layer.bias_u[:, :T] @ layer.bias_x[:, :T].mT, aft.strict(3))
    elif name == "local-banded":
        y = aft.torch.local(q, k, v, aft.Banded(layer.bias_w[:, :T]), aft.Window(1, 2))
    elif name == "simple":
        y = torch.sigmoid(q) * (torch.softmax(k, 1) * v).sum(1, keepdim=True)
    else:
        r = layer.filter.flatten(1)
        r = (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True) * layer.gain[:, None] + layer.shift[:, None]
        y = aft.torch.conv(q, k, v, r.view_as(layer.filter))
    return layer.output(y)


def awakened(make, **more):
    """With gains of a filter that are not 0."""
    layer = make(**more)
    for name in ("gain", "shift"):
        if hasattr(layer, name):
            torch.nn.init.normal_(getattr(layer, name))
    return layer


@pytest.mark.parametrize("name", LAYERS)
def test_results(name):
    torch.manual_seed(1)
    layer = awakened(LAYERS[name], dtype=torch.float64)
    x = input_of(name, torch.float64)
    assert layer(x).shape == x.shape
    narrow = copy.deepcopy(layer).float()
    rounding.expect(layer(x), by_hand(name, layer, x), by_hand(name, narrow, x.float()))


@pytest.mark.parametrize("name", LAYERS)
def test_every_parameter_learns(name):
    torch.manual_seed(2)
    layer = awakened(LAYERS[name])
    layer(input_of(name)).square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        # A filter's shift moves every tap: with zeros outside it matters, and within one query's row it may not.
        assert parameter.grad is not None and parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_states(name):
    torch.manual_seed(3)
    layer, x = awakened(LAYERS[name]), input_of(name)
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = LAYERS[name]()
    assert not torch.equal(other(x), expected)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), expected)
    whole = io.BytesIO()
    torch.save(layer, whole)
    whole.seek(0)
    assert torch.equal(torch.load(whole, weights_only=False)(x), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_initial_values(name):
    """The papers': normal factors and biases, and filters without effect."""
    layer = LAYERS[name]()
    before = copy.deepcopy(layer.state_dict())
    layer.reset_parameters()
    fixed = {"gain", "shift"}
    for key, value in layer.state_dict().items():
        assert torch.equal(value, before[key]) == (key in fixed), key
    if "conv" in name:
        assert not layer.gain.any() and not layer.shift.any()
        x = input_of(name)

        def simple(layer, x):
            y = aft.torch.simple(*(p(x).flatten(1, -2) for p in (layer.query, layer.key, layer.value)))
            return layer.output(y).view_as(x)

        rounding.expect(layer(x), simple(copy.deepcopy(layer).double(), x.double()), simple(layer, x))


def test_the_size_of_initial_factors():
    """A variance of 10^-2, within 5 of its own standard errors, sqrt(2 / n) of it."""
    layer = nn.AFTFull(8, 64)
    assert layer.bias_u.shape == layer.bias_x.shape == (1, 64, 128)
    for factor in (layer.bias_u, layer.bias_x):
        assert abs(factor.var() / 1e-2 - 1) < 5 * math.sqrt(2 / factor.numel())


def test_layers_on_a_device_without_memory():
    """As models too large for one go: made without numbers, given them later."""
    with torch.device("meta"):
        layer = nn.AFTLocal(D, 12, 3)
    layer.to_empty(device="cpu").reset_parameters()
    assert layer(torch.randn(B, T, D)).isfinite().all()


def test_options_reach_the_operator():
    torch.manual_seed(4)
    x, context = torch.randn(B, T, D), torch.randn(B, 9, D)
    layer = nn.AFTFull(D, 12, rank=2, causal=True, gate="tanh")
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    w = aft.Factorized(layer.bias_u[:, :T], layer.bias_x[:, :T])
    expected = aft.torch.full(q, k, v, w, causal=True, gate="tanh", key_lengths=[3, 7], query_lengths=[7, 2])
    assert torch.equal(layer(x, key_lengths=torch.tensor([3, 7]), query_lengths=torch.tensor([7, 2])),
                       layer.output(expected))
    crossed = nn.AFTFull(D, 12, rank=2)
    mask = torch.arange(9) < 4
    exact = copy.deepcopy(crossed).double()(x.double(), context[:, :4].double())
    rounding.expect(crossed(x, context, mask=mask), exact, crossed(x, context[:, :4]))
    without = nn.AFTSimple(D, gate="none")
    assert without.query is None and without(x).shape == x.shape


def test_what_does_not_fit():
    for make in (lambda: nn.AFTFull(D, 12, heads=3), lambda: nn.AFTConv1d(D, 3, 3), lambda: nn.AFTConv1d(D, 0, 3)):
        with pytest.raises(ValueError, match="heads"):
            make()
    for layer in (nn.AFTFull(D, 12), nn.AFTLocal(D, 12, 3, rank=None)):
        with pytest.raises(ValueError, match="max_length = 12 positions, got 13"):
            layer(torch.zeros(1, 13, D))
    with pytest.raises(ValueError, match="context"):
        nn.AFTSimple(D, gate="none")(torch.zeros(1, 3, D), torch.zeros(1, 3, D))
    with pytest.raises(ValueError, match="gate"):
        nn.AFTSimple(D, gate="softmax")(torch.zeros(1, 3, D))


def test_parameter_groups():
    compat = aft.torch.compat
    model = torch.nn.Sequential(nn.AFTFull(D, 12, rank=2), torch.nn.Linear(D, D), nn.AFTConv1d(D, 2, 3),
                                nn.AFTSimple(D), compat.labml.AFTLocal(D, 12, 3), compat.aft_pytorch.AFTFull(12, D))
    model[1].bias.requires_grad_(False)
    others, biases = aft.torch.parameter_groups(model, 1e-3, 30)
    assert others["lr"] == 1e-3 and biases["lr"] == 30 * 1e-3
    named = {id(p): name for name, p in model.named_parameters()}
    assert [named[id(p)] for p in biases["params"]] == [
        "0.bias_u", "0.bias_x", "2.filter", "2.gain", "2.shift", "4.pos_bias", "5.wbias"]
    found = {named[id(p)] for p in (*others["params"], *biases["params"])}
    assert found == {name for name, p in model.named_parameters() if p.requires_grad}
    assert "1.bias" not in found and "4.local_mask" not in found
    torch.optim.AdamW(aft.torch.parameter_groups(model, 1e-3))
    with pytest.raises(ValueError, match="bias_factor"):
        aft.torch.parameter_groups(model, 1e-3, -1)


def test_reparameterize():
    """As aft.reparameterize, gradients too; equal taps, and one tap, are the shift."""
    draw = torch.Generator().manual_seed(5)
    for shape in ((3, 4), (2, 3, 2), (2, 1), (1, 2, 2, 2)):
        r, gain, shift, dout = (torch.randn(n, generator=draw, dtype=torch.float64, requires_grad=True)
                                for n in (shape, shape[:1], shape[:1], shape))
        out = aft.torch.reparameterize(r, gain, shift)
        mine = torch.autograd.grad(out, (r, gain, shift), dout)
        plain = [x.detach().numpy() for x in (r, gain, shift, dout)]
        expected = (aft.reparameterize(*plain[:3]), *aft.reparameterize_backward(*plain))
        narrow = [x.astype("float32") for x in plain]
        narrow = (aft.reparameterize(*narrow[:3]), *aft.reparameterize_backward(*narrow))
        rounding.expect((out.detach(), *mine), *([torch.from_numpy(x) for x in several] for several in (expected, narrow)))
    flat = torch.full((2, 3), 0.1, requires_grad=True)
    gain, shift = torch.ones(2, requires_grad=True), torch.tensor([1.0, 2.0])
    out = aft.torch.reparameterize(flat, gain, shift)
    assert torch.equal(out, shift[:, None].expand(2, 3))
    assert not any(g.any() for g in torch.autograd.grad(out.sum(), (flat, gain)))
    # Sums of equal taps round: their mean is then another number than they are.
    for taps in range(2, 66):
        flat = torch.full((2, taps), 0.1, dtype=torch.float64, requires_grad=True)
        out = aft.torch.reparameterize(flat, gain.double(), shift.double())
        assert torch.equal(out, shift.double()[:, None].expand(2, taps))
        assert not torch.autograd.grad(out.sum(), flat)[0].any()
    with pytest.raises(ValueError, match="gain and shift"):
        aft.torch.reparameterize(flat, gain, shift[:1])
