# SPDX-License-Identifier: Apache-2.0
"""In place of the package aft-pytorch: AFTFull, AFTSimple and AFTLocal, (B, T, dim) to (B, T, dim), not causal.

Results are the same but where that package's exponentials overflow, which is for keys or biases from 88 on: they are
finite here. Gradients of AFTLocal reach wbias here; there every call makes another parameter of it, which an optimizer
knows nothing of.
"""

from __future__ import annotations

import torch
from torch import nn

import aft

from ..functions import full, local, simple

Tensor = torch.Tensor


class _Projections(nn.Module):
    """Projections to hidden_dim channels, named as in that package."""

    def __init__(self, max_seqlen: int, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.max_seqlen, self.dim, self.hidden_dim = max_seqlen, dim, hidden_dim
        self.to_q = nn.Linear(dim, hidden_dim)
        self.to_k = nn.Linear(dim, hidden_dim)
        self.to_v = nn.Linear(dim, hidden_dim)
        self.project = nn.Linear(hidden_dim, dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The operator between the projections, (B, T, hidden_dim)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, dim) to (B, T, dim)."""
        y = self.mix(self.to_q(x), self.to_k(x), self.to_v(x))
        return self.project(y)  # type: ignore[no-any-return]


class _PairBias(_Projections):
    """With a bias for every pair of up to max_seqlen positions."""

    position_parameters = ("wbias",)

    def __init__(self, max_seqlen: int, dim: int, hidden_dim: int) -> None:
        super().__init__(max_seqlen, dim, hidden_dim)
        self.wbias = nn.Parameter(torch.empty(max_seqlen, max_seqlen))
        nn.init.xavier_uniform_(self.wbias)

    def bias_of(self, k: Tensor) -> Tensor:
        """The bias of as many positions as there are, T of (B, T, hidden_dim)."""
        length = k.shape[1]
        if length > self.max_seqlen:
            raise ValueError(f"x: expected at most max_seqlen = {self.max_seqlen} positions, got {length}")
        return self.wbias[:length, :length]


class AFTFull(_PairBias):
    """y = sigmoid(q) sum_s softmax_s(k + wbias) v, then a projection (AFT Eq. 2); see aft.torch.full.

    Args: max_seqlen, the longest sequence, where a longer one is a ValueError; dim; hidden_dim.
    """

    def __init__(self, max_seqlen: int, dim: int, hidden_dim: int = 64) -> None:
        super().__init__(max_seqlen, dim, hidden_dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return full(q, k, v, self.bias_of(k))  # type: ignore[no-any-return]


class AFTSimple(_Projections):
    """The same without a bias (AFT Eq. 5), for any length: max_seqlen is not looked at. See aft.torch.simple."""

    def __init__(self, max_seqlen: int, dim: int, hidden_dim: int = 64) -> None:
        super().__init__(max_seqlen, dim, hidden_dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return simple(q, k, v)  # type: ignore[no-any-return]


class AFTLocal(_PairBias):
    """The same with wbias where |t - t'| < s and 0 elsewhere (AFT Eq. 4); see aft.torch.local.

    The entries outside the window stay what they are, where that package makes them 0; nothing reads them.
    """

    def __init__(self, max_seqlen: int, dim: int, hidden_dim: int = 64, s: int = 256) -> None:
        super().__init__(max_seqlen, dim, hidden_dim)
        self.s = s

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return local(q, k, v, self.bias_of(k), aft.strict(self.s))  # type: ignore[no-any-return]
