# SPDX-License-Identifier: Apache-2.0
"""What the layers have in common: four projections, an operator between them, and streams."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

import aft

Tensor = torch.Tensor


class Mixer(nn.Module):
    """Base of the layers; a subclass adds its position bias and says how it is applied.

    The projections have the initial values of torch.nn.Linear.
    """

    # Names of parameters that are position biases: parameter_groups gives them a learning rate of their own.
    position_parameters: tuple[str, ...] = ()

    def __init__(self, d_model: int, key_channels: int, *, gate: str, causal: bool, bias: bool,
                 device: Any, dtype: Any) -> None:
        super().__init__()
        self.d_model, self.key_channels, self.gate, self.causal = d_model, key_channels, gate, causal
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        # Without a gate nothing reads a query.
        self.query = None if gate == "none" else nn.Linear(d_model, d_model, bias=bias, **made)
        self.key = nn.Linear(d_model, key_channels, bias=bias, **made)
        self.value = nn.Linear(d_model, d_model, bias=bias, **made)
        self.output = nn.Linear(d_model, d_model, bias=bias, **made)

    def reset_parameters(self) -> None:
        """Gives every parameter its initial value anew."""
        for projection in (self.query, self.key, self.value, self.output):
            if projection is not None:
                projection.reset_parameters()
        self.reset_bias()

    def reset_bias(self) -> None:
        """Gives the position bias its initial value anew."""

    def mix(self, q: Optional[Tensor], k: Tensor, v: Tensor, stream: Optional[aft.Stream] = None,
            **options: Any) -> Tensor:
        """The operator with this layer's bias."""
        raise NotImplementedError

    def forward(self, x: Tensor, context: Optional[Tensor] = None, *, mask: Optional[Tensor] = None,
                key_lengths: Optional[Tensor] = None, query_lengths: Optional[Tensor] = None) -> Tensor:
        """Mixes positions.

        Args:
            x: (B, Tq, d_model), on grids (B, height, width, d_model).
            context: (B, Tk, d_model), where keys and values come from; x if left out. Needs a gate.
            mask, key_lengths, query_lengths: as in aft.torch.full.

        Returns a tensor of x's shape. Rows behind a query length are the bias of the output's projection.
        """
        if self.query is None and context is not None:
            raise ValueError('context: expected None, since with the gate "none" x is not read')
        source = x if context is None else context
        q = None if self.query is None else self.query(x)
        y = self.mix(q, self.key(source), self.value(source), mask=mask, key_lengths=key_lengths,
                     query_lengths=query_lengths)
        return self.output(y)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, key_channels={self.key_channels}, gate={self.gate!r}, causal={self.causal}"
