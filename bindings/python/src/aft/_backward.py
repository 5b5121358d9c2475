# SPDX-License-Identifier: Apache-2.0
"""Gradients of the four operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _core
from ._arguments import Array, Options, Window
from ._forward import CONV, FULL, LOCAL, SIMPLE

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class BackwardOptions(Options, total=False):
        """Those of a backward call, with what the forward call has kept for it."""

        lse: Any
        average: Any

A = TypeVar("A", bound=Array)
B = TypeVar("B")
Out = TypeVar("Out", bound="tuple[Any, ...]")


def _places(op: str, out: Any, count: int) -> tuple[Any, ...]:
    """What the extension is told for each gradient: None as it is, and an array for the place that it is written to."""
    if out is None:
        return (True,) * count
    if not isinstance(out, tuple) or len(out) != count:
        raise ValueError(f"aft::{op}: argument 'out': expected a tuple of {count}, one place for each gradient, "
                         f"got {out!r}")
    return out


@overload
def full_backward(q: A | None, k: A, v: A, bias: B, dy: A, *, out: None = ...,
                  **options: Unpack[BackwardOptions]) -> tuple[A, A, A, B]: ...
@overload
def full_backward(q: A | None, k: A, v: A, bias: Any, dy: A, *, out: Out,
                  **options: Unpack[BackwardOptions]) -> Out: ...
def full_backward(q: Any, k: Any, v: Any, bias: Any, dy: Any, *, causal: bool = False, gate: str = "sigmoid",
                  outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
                  query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None,
                  lse: Any = None, average: Any = None, threads: int = 0, out: Any = None) -> Any:
    """Gradients of aft.full: (dq, dk, dv, dbias) of sum(y dy), in the shapes of q, k, v and bias.

        g = dy gate(q),  o = sum_s a v                       (the average, of AFT Eq. 2)
        dq[b,t,c] = dy gate'(q) o
        dv[b,s,c] = sum_t a[t,s,c] g[b,t,c]
        dk[b,s,c] = sum_t a[t,s,c] g[b,t,c] (v[b,s,c] - o[b,t,c])
        dw[h,t,s] = sum_bc a[t,s,c] g[b,t,c] (v[b,s,c] - o[b,t,c])

    dy             (B, Tq, d), as y.
    lse, average   what the forward call with the same options returned; both or neither. Without them they are computed
                   again.
    out            (dq, dk, dv, dbias): arrays that are overwritten, and None for gradients that are not wanted and cost
                   nothing. They are returned. Where the bias is broadcast over batch or heads, the extent of dbias may
                   be 1 there.

    dbias is of the bias's kind: an array, aft.Factorized(du, dv) or aft.Banded(dw). q may be None with gate="none"; dq
    is then 0, in the shape of dy. All other arguments and errors are those of aft.full; streams have no gradient. Cost:
    O(B Tq Tk d) multiply-adds, three times the forward call's.
    """
    return _core.backward(FULL, q, k, v, bias, None, causal, gate, outside, arithmetic, mask, key_lengths,
                          query_lengths, first_query, query_offsets, key_offsets, None, None, threads, None,
                          dy, lse, average,
                          *_places("full_backward", out, 4))


@overload
def local_backward(q: A | None, k: A, v: A, bias: B, window: Window | tuple[int, int], dy: A, *, out: None = ...,
                   **options: Unpack[BackwardOptions]) -> tuple[A, A, A, B]: ...
@overload
def local_backward(q: A | None, k: A, v: A, bias: Any, window: Window | tuple[int, int], dy: A, *, out: Out,
                   **options: Unpack[BackwardOptions]) -> Out: ...
def local_backward(q: Any, k: Any, v: Any, bias: Any, window: Any, dy: Any, *, causal: bool = False,
                   gate: str = "sigmoid", outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None,
                   key_lengths: Any = None, query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None,
                   key_offsets: Any = None, lse: Any = None, average: Any = None, threads: int = 0,
                   out: Any = None) -> Any:
    """Gradients of aft.local (AFT Eq. 4): (dq, dk, dv, dbias), as aft.full_backward. dbias is 0 outside the window.

    Cost: O(B Tq width d) multiply-adds, and O(B (Tq + Tk) d) for everything outside.
    """
    return _core.backward(LOCAL, q, k, v, bias, window, causal, gate, outside, arithmetic, mask, key_lengths,
                          query_lengths, first_query, query_offsets, key_offsets, None, None, threads, None,
                          dy, lse, average,
                          *_places("local_backward", out, 4))


@overload
def simple_backward(q: A | None, k: A, v: A, dy: A, *, out: None = ...,
                    **options: Unpack[BackwardOptions]) -> tuple[A, A, A]: ...
@overload
def simple_backward(q: A | None, k: A, v: A, dy: A, *, out: Out, **options: Unpack[BackwardOptions]) -> Out: ...
def simple_backward(q: Any, k: Any, v: Any, dy: Any, *, causal: bool = False, gate: str = "sigmoid",
                    outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None,
                    key_lengths: Any = None, query_lengths: Any = None, first_query: int = 0,
                    query_offsets: Any = None, key_offsets: Any = None, lse: Any = None, average: Any = None,
                    threads: int = 0, out: Any = None) -> Any:
    """Gradients of aft.simple (AFT Eq. 5): (dq, dk, dv), as aft.full_backward. Cost: O(B (Tq + Tk) d)."""
    return _core.backward(SIMPLE, q, k, v, None, None, causal, gate, outside, arithmetic, mask, key_lengths,
                          query_lengths, first_query, query_offsets, key_offsets, None, None, threads, None,
                          dy, lse, average,
                          *_places("simple_backward", out, 3), None)


@overload
def conv_backward(q: A | None, k: A, v: A, filter: B, dy: A, *, out: None = ...,
                  **options: Unpack[BackwardOptions]) -> tuple[A, A, A, B]: ...
@overload
def conv_backward(q: A | None, k: A, v: A, filter: Any, dy: A, *, out: Out,
                  **options: Unpack[BackwardOptions]) -> Out: ...
def conv_backward(q: Any, k: Any, v: Any, filter: Any, dy: Any, *, causal: bool = False, gate: str = "sigmoid",
                  outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
                  query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None,
                  lse: Any = None, average: Any = None, threads: int = 0, out: Any = None) -> Any:
    """Gradients of aft.conv (AFT Eq. 6): (dq, dk, dv, dfilter), as aft.full_backward; dfilter has the filter's shape.

    Of an aft.SparseFilter dfilter is one with the same taps, and the gradient of the values for values; it takes the
    time of a filter, as wide to either side, that holds all taps.

    Cost: O(B T taps d) multiply-adds, and O(B T d) for everything outside.
    """
    return _core.backward(CONV, q, k, v, filter, None, causal, gate, outside, arithmetic, mask, key_lengths,
                          query_lengths, first_query, query_offsets, key_offsets, None, None, threads, None,
                          dy, lse, average,
                          *_places("conv_backward", out, 4))
