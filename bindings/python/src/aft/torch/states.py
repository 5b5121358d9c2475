# SPDX-License-Identifier: Apache-2.0
"""The bytes of a stream's slots as a tensor."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.utils import dlpack

import aft

# PyTorch has no type for it.
_from_dlpack: Callable[[Any], torch.Tensor] = getattr(dlpack, "from_dlpack")


def state_of(stream: aft.Stream) -> torch.Tensor:
    """(slots, bytes) of uint8, on the stream's own memory: what is written to one is in the other."""
    state = stream._state
    if isinstance(state, torch.Tensor):
        return state
    # Asked for its state, a stream with memory of its own would need NumPy, which PyTorch does without.
    return _from_dlpack(stream._slots.memory if state is None else state)
