# SPDX-License-Identifier: Apache-2.0
"""What calls take besides arrays: biases that are not one array, and windows."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypedDict


class Array(Protocol):
    """An array of any library: NumPy's, or one that exports itself through DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """A capsule of its memory."""


class Factorized(NamedTuple):
    """A bias w = u v^T that is never stored as a whole (AFT Eq. 7): w[h,t,s] = sum_i u[h,t,i] v[h,s,i].

    u: (Tq, n) or (H, Tq, n); v: (Tk, n) or (H, Tk, n), of the data's type, or float (double for double data).
    """

    u: Any
    v: Any


class Banded(NamedTuple):
    """The bias of a window for aft.local, row by row (AFT Eq. 4): its entry j = s - t + before is that of key s.

    w: (Tq, before + after + 1) or (H, Tq, before + after + 1), of the data's type, or float (double for double data).
    Entries of keys that do not exist are not read.
    """

    w: Any


class SparseFilter(NamedTuple):
    """A filter for aft.conv with few taps, written one by one (AFT, below Eq. 10): w[h,t,s] = values[h,i] where s - t is
    taps[h,i], and 0 elsewhere.

    taps: (H, m) on sequences, or (H, m, axes), signed offsets of int32 or int64, each once in a head and at most 0 where
    causal. values: (H, m), of the data's type, or float (double for double data). Without a stream.
    """

    taps: Any
    values: Any


class Window(NamedTuple):
    """The keys t - before <= s <= t + after of query t. before + after + 1 is 0 or more."""

    before: int
    after: int


def strict(s: int) -> Window:
    """The window |t - s'| < s, as AFT Eq. 4 has it. strict(0) holds no key, which makes aft.local AFT-simple."""
    return Window(s - 1, max(s - 1, 0))


def inclusive(s: int) -> Window:
    """The window |t - s'| <= s, as DAFT Eq. 7 has it: Window(s, s)."""
    return Window(s, s)


class Options(TypedDict, total=False):
    """What every operator can be told by keyword; aft.full documents each. For type checkers."""

    causal: bool
    gate: str
    outside: str
    arithmetic: str
    mask: Any
    key_lengths: Any
    query_lengths: Any
    first_query: int
    query_offsets: Any
    key_offsets: Any
    threads: int
