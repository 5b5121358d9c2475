# SPDX-License-Identifier: Apache-2.0
"""Layers that know each position by its number: a bias of up to max_length positions."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

import aft

from .mixer import Tensor
from .sequence import SequenceMixer


class PositionMixer(SequenceMixer):
    """Base of AFTFull and AFTLocal: factors bias_u and bias_x (AFT Eq. 7), or bias_w without factors."""

    position_parameters = ("bias_w", "bias_u", "bias_x")
    bias_w: Any
    bias_u: Any
    bias_x: Any

    def __init__(self, d_model: int, max_length: int, columns: int, *, heads: int, rank: Optional[int], causal: bool,
                 gate: str, bias: bool, initial_std: float, device: Any, dtype: Any) -> None:
        super().__init__(d_model, d_model, gate=gate, causal=causal, bias=bias, device=device, dtype=dtype)
        if heads < 1 or d_model % heads:
            raise ValueError(f"heads: expected a divisor of d_model, {d_model}, got {heads}")
        self.max_length, self.heads, self.rank, self.initial_std = max_length, heads, rank, initial_std

        def parameter(wanted: bool, width: int) -> Optional[nn.Parameter]:
            return nn.Parameter(torch.empty(heads, max_length, width, device=device, dtype=dtype)) if wanted else None

        self.register_parameter("bias_w", parameter(rank is None, columns))
        self.register_parameter("bias_u", parameter(rank is not None, rank or 0))
        self.register_parameter("bias_x", parameter(rank is not None, rank or 0))
        self.reset_bias()

    def reset_bias(self) -> None:
        """Normal numbers of mean 0 and standard deviation initial_std, as in the paper."""
        for name in PositionMixer.position_parameters:
            parameter = getattr(self, name)
            if parameter is not None:
                nn.init.normal_(parameter, std=self.initial_std)

    def factors(self, queries: int, keys: int) -> aft.Factorized:
        """The bias of the first positions, of a layer with factors."""
        return aft.Factorized(self.bias_u[:, :queries], self.bias_x[:, :keys])

    def lengths(self, q: Optional[Tensor], k: Tensor, streaming: bool) -> tuple[int, int]:
        """Rows and columns of the bias that a call needs: all of them in a stream, whose positions are its own."""
        if streaming:
            return self.max_length, self.max_length
        queries, keys = (k if q is None else q).shape[1], k.shape[1]
        if queries > self.max_length or keys > self.max_length:
            raise ValueError(f"x: expected at most max_length = {self.max_length} positions, got {max(queries, keys)}")
        return queries, keys

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}, heads={self.heads}, rank={self.rank}"
