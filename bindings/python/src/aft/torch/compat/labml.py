# SPDX-License-Identifier: Apache-2.0
"""In place of labml_nn.transformers.aft: AFTLocal, on tensors with time in front.

Results are the same but where that module's two maxima, one of the keys and one of the biases, leave 0 / 0 of a row
whose largest key has a small bias: a row is exact here for any finite input. Its first maximum is over all keys,
hidden ones too, so that a very large future key makes earlier rows vanish there, and not here.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

import aft

from ..functions import local

Tensor = torch.Tensor


class AFTLocal(nn.Module):
    """w = pos_bias where |t - t'| < local_window_size, 0 elsewhere (AFT Eq. 4); see aft.torch.local.

    Args:
        d_model: channels.
        seq_len: the longest sequence; a longer one is a ValueError.
        local_window_size: s.
        bias: whether the projections of query, key and value add one; that of the output always does.

    Parameters are those of that module, its constant mask of the window too, which the state of a model has to agree
    with: loading another window's raises RuntimeError, as other states that do not fit do.
    """

    position_parameters = ("pos_bias",)

    def __init__(self, d_model: int, seq_len: int, local_window_size: int, bias: bool = True) -> None:
        super().__init__()
        self.local_window_size = local_window_size
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(d_model, d_model, bias=bias)
        self.value = nn.Linear(d_model, d_model, bias=bias)
        self.pos_bias = nn.Parameter(torch.zeros(seq_len, seq_len))
        self.local_mask = nn.Parameter(self.create_local_mask(seq_len, local_window_size), requires_grad=False)
        self.output = nn.Linear(d_model, d_model)

    @staticmethod
    def create_local_mask(seq_len: int, local_window_size: int) -> Tensor:
        """(seq_len, seq_len) of bool: the pairs with |t - t'| < local_window_size."""
        positions = torch.arange(seq_len)
        return (positions[:, None] - positions).abs() < local_window_size

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: Any, unexpected_keys: Any, error_msgs: Any) -> None:
        given = state_dict.get(prefix + "local_mask")
        # The window is a number here and no tensor, so that another one would go unseen.
        # On the host, wherever a checkpoint or this module lies; without numbers there is nothing to compare.
        if (given is not None and given.shape == self.local_mask.shape and not given.is_meta and not torch.equal(
                given.cpu(), self.create_local_mask(given.shape[0], self.local_window_size).cpu())):
            error_msgs.append(f"{prefix}local_mask: expected the window of local_window_size = "
                              f"{self.local_window_size}, got another one")
        load: Any = super()._load_from_state_dict
        load(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def forward(self, *, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Mixes positions.

        Args:
            query: (Tq, B, d_model).
            key, value: (Tk, B, d_model).
            mask: (1 or Tq, Tk, 1 or B) of bool: mask[t, s, b] says whether row t sees key s. None: every row sees every
                key, where that module fails.

        Returns (Tq, B, d_model). Raises ValueError for shapes that do not fit.
        """
        queries, keys = query.shape[0], key.shape[0]
        if max(queries, keys) > self.pos_bias.shape[0]:
            raise ValueError(f"query, key: expected at most seq_len = {self.pos_bias.shape[0]} positions, got "
                             f"{max(queries, keys)}")
        # Views: the operator reads any strides, so that time in front costs no copy.
        q, k, v = (projection(x).transpose(0, 1)
                   for projection, x in ((self.query, query), (self.key, key), (self.value, value)))
        pairs = None if mask is None else mask.permute(2, 0, 1)
        y = local(q, k, v, self.pos_bias[:queries, :keys], aft.strict(self.local_window_size), mask=pairs)
        return self.output(y.transpose(0, 1))  # type: ignore[no-any-return]
