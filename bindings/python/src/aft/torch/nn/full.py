# SPDX-License-Identifier: Apache-2.0
"""AFT-full."""

from __future__ import annotations

from typing import Any, Optional

import aft

from ..functions import Bias, full
from .mixer import Tensor
from .positions import PositionMixer


class AFTFull(PositionMixer):
    """A learned bias for every pair of positions, w = u x^T (AFT Eq. 2 and 7; DAFT Eq. 5 and 6).

    Args:
        d_model: channels of input, keys, values and result.
        max_length: the longest sequence; a shorter one uses the first positions' biases.
        heads: sets of biases; divides d_model.
        rank: columns of the factors u and x, 128 in the papers; None for a bias without factors.
        causal: a position sees itself and those before it.
        gate: the function of the query, see aft.torch.full.
        bias: whether the projections add one.
        initial_std: factors, or the bias without factors, are normal with this standard deviation at the start. The
            paper's N(0, 10^-2), read as mean and variance, is 0.1.
        device, dtype: of the parameters.

    forward: (B, T, d_model) to (B, T, d_model), T at most max_length. Parameters: bias_u and bias_x,
    (heads, max_length, rank), or bias_w, (heads, max_length, max_length); and four projections. Cost: that of
    aft.torch.full and of the projections. Raises ValueError for a longer sequence and for heads that do not divide.
    """

    def __init__(self, d_model: int, max_length: int, *, heads: int = 1, rank: Optional[int] = 128,
                 causal: bool = False, gate: str = "sigmoid", bias: bool = True, initial_std: float = 0.1,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(d_model, max_length, max_length, heads=heads, rank=rank, causal=causal, gate=gate, bias=bias,
                         initial_std=initial_std, device=device, dtype=dtype)

    def mix(self, q: Optional[Tensor], k: Tensor, v: Tensor, stream: Optional[aft.Stream] = None,
            **options: Any) -> Tensor:
        queries, keys = self.lengths(q, k, stream is not None)
        bias: Bias = self.bias_w[:, :queries, :keys] if self.rank is None else self.factors(queries, keys)
        return full(q, k, v, bias, causal=self.causal, gate=self.gate,  # type: ignore[no-any-return]
                    stream=stream, **options)

    def stream_of(self, **options: Any) -> aft.Stream:
        return aft.Stream.full(self.d_model, self.key_channels, self.max_length, **options)
