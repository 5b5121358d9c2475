# SPDX-License-Identifier: Apache-2.0
"""AFT-conv, on sequences and on images."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import nn

import aft

from ..filters import reparameterize
from ..functions import conv
from .mixer import Mixer, Tensor
from .sequence import SequenceMixer


class FilterMixer(Mixer):
    """Base of the layers with filters: one for each head, normalised, with a gain and a shift (AFT Eq. 8).

    Keys have a channel for each head, as in the papers. Gains and shifts are 0 at the start, as there, which makes the
    layer AFT-simple then, and the filters themselves are normal numbers, whose size the normalisation takes out.
    """

    position_parameters = ("filter", "gain", "shift")

    def __init__(self, d_model: int, heads: int, taps: tuple[int, ...], *, causal: bool, gate: str, bias: bool,
                 device: Any, dtype: Any) -> None:
        super().__init__(d_model, heads, gate=gate, causal=causal, bias=bias, device=device, dtype=dtype)
        if heads < 1 or d_model % heads:
            raise ValueError(f"heads: expected a divisor of d_model, {d_model}, got {heads}")
        self.heads, self.taps = heads, taps
        self.filter = nn.Parameter(torch.empty(heads, *taps, device=device, dtype=dtype))
        self.gain = nn.Parameter(torch.empty(heads, device=device, dtype=dtype))
        self.shift = nn.Parameter(torch.empty(heads, device=device, dtype=dtype))
        self.reset_bias()

    def reset_bias(self) -> None:
        """Normal filters, gains and shifts of 0."""
        nn.init.normal_(self.filter)
        nn.init.zeros_(self.gain)
        nn.init.zeros_(self.shift)

    def mix(self, q: Optional[Tensor], k: Tensor, v: Tensor, stream: Optional[aft.Stream] = None,
            **options: Any) -> Tensor:
        return conv(q, k, v, reparameterize(self.filter, self.gain, self.shift),  # type: ignore[no-any-return]
                    causal=self.causal, gate=self.gate, stream=stream, **options)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}, taps={self.taps}"


class AFTConv1d(FilterMixer, SequenceMixer):
    """A learned bias for every distance on a sequence (AFT Eq. 6 and 8; DAFT Eq. 8 and 9).

    Args:
        d_model: channels of input, values and result.
        heads: filters, and channels of the keys; divides d_model.
        taps: of a filter; a causal one ends at its own position, another one is centred there.
        causal, gate, bias, device, dtype: as in AFTFull.

    forward: (B, T, d_model) to (B, T, d_model), of any length. Parameters: filter (heads, taps), gain and shift
    (heads), and four projections. Cost: that of the projections, and O(B T taps d_model).
    """

    def __init__(self, d_model: int, heads: int, taps: int, *, causal: bool = False, gate: str = "sigmoid",
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(d_model, heads, (taps,), causal=causal, gate=gate, bias=bias, device=device, dtype=dtype)

    def stream_of(self, **options: Any) -> aft.Stream:
        return aft.Stream.conv(self.d_model, self.key_channels, self.taps[0], **options)


class AFTConv2d(FilterMixer):
    """A learned bias for every relative position in an image (AFT Eq. 6 and 8; DAFT Eq. 8 and 9).

    Args:
        taps: of a filter, one number for a square one or (kh, kw).

    The other arguments as in AFTConv1d, without causal order. forward: (B, height, width, d_model) to the same shape;
    a channels-first image is x.permute(0, 2, 3, 1), which the operator reads as it lies. Parameters: filter
    (heads, kh, kw), gain and shift (heads), and four projections. Cost: that of the projections, and
    O(B height width kh kw d_model).
    """

    def __init__(self, d_model: int, heads: int, taps: Union[int, tuple[int, int]], *, gate: str = "sigmoid",
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        square = (taps, taps) if isinstance(taps, int) else tuple(taps)
        super().__init__(d_model, heads, square, causal=False, gate=gate, bias=bias, device=device, dtype=dtype)
