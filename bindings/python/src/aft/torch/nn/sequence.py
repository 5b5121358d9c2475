# SPDX-License-Identifier: Apache-2.0
"""Layers on sequences go on from a stream: a position costs what it adds, not the sequence again."""

from __future__ import annotations

from typing import Any, Optional

import torch

import aft
from aft._stream import _name_of

from ..states import state_of
from .mixer import Mixer, Tensor


class SequenceMixer(Mixer):
    """Base of the layers on sequences, (B, T, d_model)."""

    def stream_of(self, **options: Any) -> aft.Stream:
        """aft.Stream of this layer's operator and shape."""
        raise NotImplementedError

    def stream(self, batch: int = 1) -> aft.Stream:
        """Slots for `batch` sequences that have not begun, for step().

        One slot takes O(d_model) bytes, times the window or the taps for AFTLocal and AFTConv1d, times max_length for
        AFTFull. Raises ValueError where the layer is not causal.
        """
        if not self.causal:
            raise ValueError(f"stream: expected a causal layer, and this {type(self).__name__} is not")
        dtype = self.key.weight.dtype
        # In memory of PyTorch's, which can be saved with a model; and zeros, so that no old bytes are.
        state = torch.zeros_like(state_of(self.stream_of(dtype=dtype, slots=batch)), device=self.key.weight.device)
        stream = self.stream_of(dtype=dtype, slots=batch, state=state)
        stream.reset()
        return stream

    @torch.no_grad()
    def step(self, x: Tensor, stream: aft.Stream, slot_ids: Optional[Tensor] = None) -> Tensor:
        """The next positions of sequences: (B, n, d_model) to the same shape, n of 1 or more.

        What forward would give for the whole sequences, up to rounding, at the cost of the new positions; the slots
        move forward by n. Without gradients. slot_ids, (B) of int64 or int32, says which slot each sequence continues,
        -1 skips it; left out, sequence b is slot b. Raises ValueError behind the last position that the layer knows.
        """
        q = None if self.query is None else self.query(x)
        k, v = self.key(x), self.value(x)
        # Slots keep numbers of their own type, whatever autocast makes of a call.
        if torch.is_autocast_enabled(x.device.type):
            dtype = getattr(torch, _name_of(stream.dtype))
            with torch.autocast(x.device.type, enabled=False):
                y = self.mix(None if q is None else q.to(dtype), k.to(dtype), v.to(dtype), stream=stream,
                             slot_ids=slot_ids)
        else:
            y = self.mix(q, k, v, stream=stream, slot_ids=slot_ids)
        return self.output(y)  # type: ignore[no-any-return]
