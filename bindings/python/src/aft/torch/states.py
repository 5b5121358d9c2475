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
    # Asked for its state, a stream with memory of its own would need NumPy, which PyTorch does without.
    memory = stream._slots.memory
    if memory is not None:
        return _from_dlpack(memory)
    state = stream.state
    return state if isinstance(state, torch.Tensor) else _from_dlpack(state)
