# SPDX-License-Identifier: Apache-2.0
"""Streams: causal calls that go on from earlier ones."""

from __future__ import annotations

from typing import Any

from . import _core
from ._arguments import Window
from ._forward import CONV, FULL, LOCAL, OPERATORS, SIMPLE


class Stream:
    """What causal calls remember of sequences, in slots of plain bytes: decoding, and prefill in chunks.

    Made by Stream.full, Stream.local, Stream.simple or Stream.conv, and given to that operator with causal=True:

        stream = aft.Stream.simple(d, hk, dtype="float32", slots=B)
        y = aft.simple(q, k, v, causal=True, stream=stream)     # q (B, n, d): the next n positions of each slot

    Results are bitwise the same however a sequence is cut into such calls. `position(slot)` counts what was taken. A
    slot may be saved and restored as the bytes of its row of `state`, also on another machine of the same byte order
    and version of the library. One stream is for one thread at a time.
    """

    __slots__ = ("_slots", "_state", "capacity", "d", "dtype", "hk", "operator", "slots", "taps", "window")

    operator: str
    """The operator that it is of: "full", "local", "simple" or "conv"."""
    d: int
    """Channels."""
    hk: int
    """Key channels."""
    dtype: Any
    """The data's type, as it was given."""
    slots: int
    """How many sequences."""
    window: Window | None
    """Of local."""
    taps: int | None
    """Of conv."""
    capacity: int | None
    """Of full: the positions that it keeps."""
    _slots: _core.Slots
    _state: Any

    def __init__(self) -> None:
        raise TypeError("Stream.full, Stream.local, Stream.simple and Stream.conv make streams")

    @classmethod
    def _make(cls, op: int, d: int, hk: int, dtype: Any, slots: int, state: Any, window: Window | None = None,
              taps: Any = 0, capacity: Any = 0) -> Stream:
        before, after = window or (0, 0)
        made = _core.Slots(op, _name_of(dtype), d, hk, before, after, taps, capacity, slots, state)
        if state is not None and slots not in (1, made.count):
            raise ValueError("aft::stream_spec: argument 'state': expected extent 0 (slots) to be "
                             f"{slots}, got {made.count}")
        self = cls.__new__(cls)
        self._slots, self._state = made, state
        self.operator, self.d, self.hk, self.dtype, self.slots = OPERATORS[op], d, hk, dtype, made.count
        # Each is of one operator; where it is not, it says nothing.
        self.window = window
        self.taps, self.capacity = taps if op == CONV else None, capacity if op == FULL else None
        return self

    @classmethod
    def full(cls, d: int, hk: int, capacity: int, *, dtype: Any, slots: int = 1, state: Any = None) -> Stream:
        """For aft.full: keeps `capacity` positions, of d channels and hk key channels, in each slot.

        dtype    of the data: a name ("float32", "float64", "float16", "bfloat16"), or NumPy's or torch's dtype.
        slots    how many sequences.
        state    an array (slots, bytes) of uint8 to keep them in: row-major, aligned to 64 bytes and writable. It is
                 taken as it is, so that saved slots go on; reset() makes a new one ready. On a GPU, calls with it are
                 there. None: memory of its own, on the host.

        Raises ValueError where a number or the state does not fit. Cost of a position: O(position d).
        """
        return cls._make(FULL, d, hk, dtype, slots, state, capacity=capacity)

    @classmethod
    def local(cls, d: int, hk: int, window: Window | tuple[int, int], *, dtype: Any, slots: int = 1,
              state: Any = None) -> Stream:
        """For aft.local with that window; other arguments as Stream.full. A position costs O((window + a tile) d)."""
        return cls._make(LOCAL, d, hk, dtype, slots, state, window=_window(window))

    @classmethod
    def simple(cls, d: int, hk: int, *, dtype: Any, slots: int = 1, state: Any = None) -> Stream:
        """For aft.simple; arguments as Stream.full. Cost of a position: O(d)."""
        return cls._make(SIMPLE, d, hk, dtype, slots, state)

    @classmethod
    def conv(cls, d: int, hk: int, taps: int, *, dtype: Any, slots: int = 1, state: Any = None) -> Stream:
        """For aft.conv with a filter (H, taps); else as Stream.full. A position costs O((taps + a tile) d)."""
        return cls._make(CONV, d, hk, dtype, slots, state, taps=taps)

    def __repr__(self) -> str:
        named = {"window": self.window, "taps": self.taps, "capacity": self.capacity}
        given = "".join(f", {name}={value!r}" for name, value in named.items() if value is not None)
        return (f"<aft.Stream.{self.operator} of d={self.d}, hk={self.hk}{given}, dtype={self.dtype!r}, "
                f"slots={self.slots}>")

    def reset(self, slot: int | None = None) -> None:
        """Makes a slot empty, whatever it holds; None: all of them."""
        self._slots.reset(-1 if slot is None else _slot(slot))

    def copy(self, from_: Any, to: Any) -> None:
        """Copies slots to others, as beam search does. `from_` and `to` are (n) whole numbers, none twice in `to`, none
        in both; for slots on a GPU arrays there. Raises ValueError, and copies nothing, where they do not fit."""
        self._slots.copy(from_, to)

    def position(self, slot: int = 0) -> int:
        """How many positions a slot has seen."""
        return self._slots.position(slot)

    @property
    def state(self) -> Any:
        """The slots' bytes, (slots, bytes) of uint8: the array that was given, else one of NumPy's."""
        if self._state is None:
            import numpy

            self._state = numpy.asarray(self._slots.memory)
        return self._state


def _window(window: Any) -> Window:
    # Its numbers are the extension's to judge, which names each.
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"aft::stream_spec: argument 'window': expected an aft.Window, got {window!r}")
    return Window(*window)


def _slot(slot: int) -> int:
    # -1 stands for all of them in the extension; here None does. What is no number is named there.
    if hasattr(slot, "__index__") and slot < 0:
        raise ValueError(f"aft::reset: argument 'slot': expected 0 or more, or None for all, got {slot}")
    return slot


def _name_of(dtype: Any) -> str:
    """The name of a type: of numpy.dtype by its member, of numpy.float32 by __name__, of torch.float32 by its text."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rsplit(".", 1)[-1]
