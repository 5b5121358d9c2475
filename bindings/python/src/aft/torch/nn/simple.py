# SPDX-License-Identifier: Apache-2.0
"""AFT-simple."""

from __future__ import annotations

from typing import Any, Optional

import aft

from ..functions import simple
from .mixer import Tensor
from .sequence import SequenceMixer


class AFTSimple(SequenceMixer):
    """No position bias (AFT Eq. 5).

    Args:
        d_model: channels of input, keys, values and result.
        causal, gate, bias, device, dtype: as in AFTFull.

    forward: (B, T, d_model) to (B, T, d_model), of any length. Cost: that of the projections, and O(B T d_model).
    """

    def __init__(self, d_model: int, *, causal: bool = False, gate: str = "sigmoid", bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(d_model, d_model, gate=gate, causal=causal, bias=bias, device=device, dtype=dtype)

    def mix(self, q: Optional[Tensor], k: Tensor, v: Tensor, stream: Optional[aft.Stream] = None,
            **options: Any) -> Tensor:
        return simple(q, k, v, causal=self.causal, gate=self.gate,  # type: ignore[no-any-return]
                      stream=stream, **options)

    def stream_of(self, **options: Any) -> aft.Stream:
        return aft.Stream.simple(self.d_model, self.key_channels, **options)
