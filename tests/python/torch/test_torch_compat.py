# SPDX-License-Identifier: Apache-2.0
"""aft.torch.compat beside the packages that it takes the place of, as PyPI has them."""

import copy
import importlib.util
import pathlib

import pytest
import rounding
import torch

from aft.torch import compat

B, T, D, SIZE = 3, 7, 6, 9


def _module(package, path):
    """One file of a package, without what else the package imports."""
    found = importlib.util.find_spec(package)
    assert found is not None, f"{package}, which requirements.txt names, is not installed"
    file = pathlib.Path(found.submodule_search_locations[0], path)
    spec = importlib.util.spec_from_file_location(f"{package}_for_comparison", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def labml():
    return _module("labml_nn", "transformers/aft/__init__.py")


@pytest.fixture(scope="module")
def aft_pytorch():
    return _module("aft_pytorch", "aft_pytorch.py")


def each_way(mine, theirs, call, *inputs):
    """The modules and call(module, *inputs) of each: ours, theirs in float64, and theirs in float32, the obvious evaluation of it."""
    exact = copy.deepcopy(theirs).double()
    modules, results = (mine, exact, theirs), []
    for module in modules:
        wide = module is exact
        # One of theirs makes tensors of the type that is made without asking.
        torch.set_default_dtype(torch.float64 if wide else torch.float32)
        try:
            results.append(call(module, *(x.double() if wide else x for x in inputs)))
        finally:
            torch.set_default_dtype(torch.float32)
    return modules, results


def expect_same_gradients(modules, results, names):
    for y in results:
        y.square().sum().backward()
    every = [dict(module.named_parameters()) for module in modules]
    for name in names:
        rounding.expect(*(parameters[name].grad for parameters in every))


def causal_mask(batch):
    return torch.ones(T, T).tril().bool()[:, :, None].expand(T, T, batch)


@pytest.mark.parametrize("bias", [True, False])
def test_labml_local(labml, bias):
    torch.manual_seed(0)
    theirs, mine = (module.AFTLocal(D, SIZE, 3, bias) for module in (labml, compat.labml))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert torch.equal(mine.local_mask, theirs.local_mask) and not mine.local_mask.requires_grad
    torch.nn.init.normal_(theirs.pos_bias)
    mine.load_state_dict(theirs.state_dict())
    x, context = torch.randn(T, B, D), torch.randn(T, B, D)
    modules, results = each_way(mine, theirs, lambda m, x, c: m(query=x, key=c, value=c, mask=causal_mask(1)), x, context)
    rounding.expect(*results)
    expect_same_gradients(modules, results, [name for name, p in theirs.named_parameters() if p.requires_grad])
    theirs.load_state_dict(mine.state_dict())


def test_labml_masks(labml):
    """One for all queries, none, and one for each batch element, of which that module documents the shape and fails."""
    torch.manual_seed(1)
    theirs, mine = (module.AFTLocal(D, SIZE, 3) for module in (labml, compat.labml))
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(T, B, D)
    everything = torch.ones(1, T, 1, dtype=torch.bool)
    _, (y, *others) = each_way(mine, theirs, lambda m, x: m(query=x, key=x, value=x, mask=everything.expand(T, T, 1)), x)
    for other in (y, mine(query=x, key=x, value=x, mask=everything), mine(query=x, key=x, value=x)):
        rounding.expect(other, *others)
    each = torch.rand(T, T, B) < 0.5
    each |= torch.eye(T, dtype=torch.bool)[:, :, None]
    y = mine(query=x, key=x, value=x, mask=each)
    for b in range(B):
        _, (_, *others) = each_way(mine, theirs, lambda m, x, b=b: m(query=x, key=x, value=x, mask=each[:, :, b:b + 1]),
                                   x[:, b:b + 1])
        rounding.expect(y[:, b:b + 1], *others)


def test_labml_large_keys(labml):
    """A large key of the future takes part in their maximum: all before it is 0 / 0. Here it is not seen."""
    torch.manual_seed(2)
    theirs, mine = (module.AFTLocal(D, SIZE, 3) for module in (labml, compat.labml))
    for module in (theirs, mine):
        with torch.no_grad():
            module.key.weight.copy_(torch.eye(D))
            module.key.bias.zero_()
    for name in ("query", "value", "output"):
        getattr(mine, name).load_state_dict(getattr(theirs, name).state_dict())
    x = torch.randn(T, 1, D)
    key = x.clone()
    key[-1] = 200
    y, other = (module(query=x, key=key, value=x, mask=causal_mask(1)) for module in (mine, theirs))
    assert other[:-1].isnan().all()
    assert y.isfinite().all()
    _, (_, *others) = each_way(mine, theirs, lambda m, x: m(query=x, key=x, value=x, mask=causal_mask(1))[:-1], x)
    rounding.expect(y[:-1], *others)


def test_labml_refuses(labml):
    mine = compat.labml.AFTLocal(D, SIZE, 3)
    with pytest.raises(RuntimeError, match="local_mask: expected the window of local_window_size = 3"):
        mine.load_state_dict(labml.AFTLocal(D, SIZE, 4).state_dict())
    # A model without numbers takes those of a checkpoint, and compares these.
    with torch.device("meta"):
        empty = compat.labml.AFTLocal(D, SIZE, 3)
    with pytest.raises(RuntimeError, match="local_mask: expected the window of local_window_size = 3"):
        empty.load_state_dict(labml.AFTLocal(D, SIZE, 4).state_dict(), assign=True)
    given = compat.labml.AFTLocal(D, SIZE, 3).state_dict()
    empty.load_state_dict(given, assign=True)
    assert torch.equal(empty.local_mask, given["local_mask"])
    long = torch.zeros(SIZE + 1, B, D)
    with pytest.raises(ValueError, match=f"seq_len = {SIZE}"):
        mine(query=long, key=long, value=long)


MODULES = {"AFTFull": (), "AFTSimple": (), "AFTLocal": (5, 3)}


@pytest.mark.parametrize("name", MODULES)
def test_aft_pytorch(aft_pytorch, name):
    torch.manual_seed(3)
    theirs, mine = (getattr(module, name)(SIZE, D, *MODULES[name]) for module in (aft_pytorch, compat.aft_pytorch))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [p.shape for p in mine.parameters()] == [p.shape for p in theirs.parameters()]
    if name != "AFTSimple":
        # A bias that the window matters for.
        torch.nn.init.normal_(theirs.wbias)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(B, T, D)
    modules, results = each_way(mine, theirs, lambda m, x: m(x), x)
    rounding.expect(*results)
    if name == "AFTLocal":
        # Their parameter of zeros outside the window has a gradient there, and training would fill them.
        s = MODULES[name][1]
        positions = torch.arange(SIZE)
        outside = (positions[:, None] - positions).abs() >= s
        for module in modules[1:]:
            module.wbias.register_hook(lambda gradient: gradient.masked_fill(outside, 0))
    expect_same_gradients(modules, results, [name for name, _ in mine.named_parameters()])


@pytest.mark.parametrize("name", MODULES)
def test_aft_pytorch_large_keys(aft_pytorch, name):
    """exp(89) is infinite in float. AFTSimple has a softmax, which is right there too."""
    torch.manual_seed(4)
    theirs, mine = (getattr(module, name)(SIZE, D, *MODULES[name]) for module in (aft_pytorch, compat.aft_pytorch))
    with torch.no_grad():
        theirs.to_k.bias.fill_(100)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(B, T, D)
    small = getattr(compat.aft_pytorch, name)(SIZE, D, *MODULES[name])
    small.load_state_dict(mine.state_dict())
    with torch.no_grad():
        small.to_k.bias.fill_(0)
    # What all keys have in common is no weight. Keys of about 100 are rounded by 2^-18, so that a weight moves by twice that and an
    # average by four times, relative to the largest value; the last projection adds D of them, and the sums round as those of
    # small keys do.
    y, wide = mine(x), copy.deepcopy(small).double()(x.double())
    moved = 4 * 2.0 ** -18 * small.to_v(x).abs().max() * small.project.weight.abs().sum(1).max()
    lost = 3 * (small(x) - wide).abs().max() + 8 * 2.0 ** -24 * wide.abs().max()
    assert (y - wide).abs().max() <= moved + lost
    assert theirs(x).isfinite().all() == (name == "AFTSimple")


def test_aft_pytorch_refuses():
    long = torch.zeros(1, SIZE + 1, D)
    for name in ("AFTFull", "AFTLocal"):
        with pytest.raises(ValueError, match=f"max_seqlen = {SIZE}"):
            getattr(compat.aft_pytorch, name)(SIZE, D)(long)
    assert compat.aft_pytorch.AFTSimple(SIZE, D)(long).shape == long.shape
