# SPDX-License-Identifier: Apache-2.0
"""The papers' parameterisation of a filter."""

from __future__ import annotations

import torch


def reparameterize(r: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """gain (r - mean) / std + shift, for each head (AFT Eq. 8; DAFT Eq. 9).

    Args:
        r: (H, taps), (H, kh, kw) or (H, kd, kh, kw).
        gain, shift: (H).

    Returns a filter of r's shape and dtype. std is that of torch.std. A filter of equal taps, or of one, has none: it
    is the shift, and the gradients of r and gain are 0. Sums are in float64. Cost: a few passes over r.

    Made of PyTorch's own functions, so that what holds of those holds here: a filter is small.
    """
    if gain.shape != r.shape[:1] or shift.shape != r.shape[:1]:
        raise ValueError(f"gain and shift: expected ({r.shape[0]},), got {tuple(gain.shape)} and {tuple(shift.shape)}")
    taps = r.double().flatten(1)
    # Exact for taps that are nearly equal, and 0 for equal ones, whose mean need not be any of them.
    taps = taps - taps[:, :1]
    centered = taps - taps.mean(1, keepdim=True)
    variance = centered.square().sum(1, keepdim=True) / max(taps.shape[1] - 1, 1)
    # A square root of 0 has an infinite slope, which would be NaN times the 0 that follows.
    flat = variance == 0
    scaled = torch.where(flat, 0.0, centered * torch.where(flat, 1.0, variance).rsqrt())
    return (gain.double()[:, None] * scaled + shift.double()[:, None]).reshape(r.shape).to(r.dtype)
