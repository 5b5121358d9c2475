# SPDX-License-Identifier: Apache-2.0
"""AFT-local."""

from __future__ import annotations

from typing import Any, Optional, Union

import aft

from ..functions import Bias, local
from .mixer import Tensor
from .positions import PositionMixer


class AFTLocal(PositionMixer):
    """A learned bias inside a window around each position, 0 outside it (AFT Eq. 4 and 7; DAFT Eq. 7).

    Args:
        window: s of |t - t'| < s (AFT Eq. 4), or an aft.Window.
        rank: columns of the factors; None for a bias without factors, of which the entries inside the window are kept
            alone: bias_w is (heads, max_length, window's width).

    The other arguments, and what is raised, as in AFTFull. Cost: that of aft.torch.local and of the projections.
    """

    def __init__(self, d_model: int, max_length: int, window: Union[int, aft.Window], *, heads: int = 1,
                 rank: Optional[int] = 128, causal: bool = False, gate: str = "sigmoid", bias: bool = True,
                 initial_std: float = 0.1, device: Any = None, dtype: Any = None) -> None:
        self_window = aft.strict(window) if isinstance(window, int) else aft.Window(*window)
        width = max(self_window.before + self_window.after + 1, 0)
        super().__init__(d_model, max_length, width, heads=heads, rank=rank, causal=causal, gate=gate, bias=bias,
                         initial_std=initial_std, device=device, dtype=dtype)
        self.window = self_window

    def mix(self, q: Optional[Tensor], k: Tensor, v: Tensor, stream: Optional[aft.Stream] = None,
            **options: Any) -> Tensor:
        queries, keys = self.lengths(q, k, stream is not None)
        bias: Bias = aft.Banded(self.bias_w[:, :queries]) if self.rank is None else self.factors(queries, keys)
        return local(q, k, v, bias, self.window, causal=self.causal, gate=self.gate,  # type: ignore[no-any-return]
                     stream=stream, **options)

    def stream_of(self, **options: Any) -> aft.Stream:
        return aft.Stream.local(self.d_model, self.key_channels, self.window, **options)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, window=({self.window.before}, {self.window.after})"
