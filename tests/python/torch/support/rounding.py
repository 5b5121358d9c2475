# SPDX-License-Identifier: Apache-2.0
"""What roundings alone may make of a result, derived as docs/adr/0006 has it and never picked.

A result may be off by three times what an obvious evaluation in the same type loses, and by eight units in the last place of the
largest number. What is lost grows with the unit of the numbers, so that the loss in float64 is the one in float32, which
float64 shows, 2^-29 times as large.
"""

import torch

UNIT = {torch.float32: 2.0 ** -24, torch.float64: 2.0 ** -53}


def _several(results):
    return results if isinstance(results, (tuple, list)) else (results,)


def expect(mine, exact, narrow):
    """mine, one tensor or several, is `exact`, which is in float64; `narrow` is the same as an obvious evaluation has it in float32."""
    assert len(_several(mine)) == len(_several(exact)) == len(_several(narrow))
    for a, wide, low in zip(_several(mine), _several(exact), _several(narrow)):
        assert a.shape == wide.shape == low.shape and wide.dtype == torch.float64 and low.dtype == torch.float32
        if wide.numel() == 0:
            continue
        unit = UNIT[a.dtype]
        allowed = 3 * (low - wide).abs().max() * (unit / UNIT[torch.float32]) + 8 * unit * wide.abs().max()
        off = (a.double() - wide).abs().max()
        assert off <= allowed, f"off by {off:.3g}, {allowed:.3g} allowed"


def narrowed(tensors):
    """Those of float64 in float32, as leaves of their own."""
    return [x.detach().float().requires_grad_(x.requires_grad) if x.dtype == torch.float64 else x for x in tensors]


def gradients(call, tensors):
    """Of the sum of the squares of call(*tensors), for all of them."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    return torch.autograd.grad(call(*leaves).square().sum(), leaves)
