# SPDX-License-Identifier: Apache-2.0
"""The four operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _core
from ._arguments import Array, Factorized, Options, Window

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from ._stream import Stream

    class ForwardOptions(Options, total=False):
        """Those of a call that may go on from a stream, and whose result may have a place."""

        stream: Stream | None
        slot_ids: Any
        out: Any

A = TypeVar("A", bound=Array)
# Operators as the extension numbers them.
OPERATORS = ("full", "local", "simple", "conv")
FULL, LOCAL, SIMPLE, CONV = range(4)


@overload
def full(q: A | None, k: A, v: A, bias: Any, *, return_lse: Literal[False] = ..., return_average: Literal[False] = ...,
         **options: Unpack[ForwardOptions]) -> A: ...
@overload
def full(q: A | None, k: A, v: A, bias: Any, *, return_lse: Literal[True], return_average: Literal[True],
         **options: Unpack[ForwardOptions]) -> tuple[A, A, A]: ...
@overload
def full(q: A | None, k: A, v: A, bias: Any, *, return_lse: bool = ..., return_average: bool = ...,
         **options: Unpack[ForwardOptions]) -> Any: ...
def full(q: Any, k: Any, v: Any, bias: Any, *, causal: bool = False, gate: str = "sigmoid",
         outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
         query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None,
         stream: Stream | None = None, slot_ids: Any = None, threads: int = 0, out: Any = None,
         return_lse: bool = False, return_average: bool = False) -> Any:
    """AFT-full: a weighted average of the values with a bias for every pair (AFT Eq. 2; DAFT Eq. 5, 6).

        y[b,t,c] = gate(q[b,t,c]) * sum_s a[t,s,c] v[b,s,c]
        a[t,s,c] = exp(k[b,s,c] + w[h,t,s]) / sum_s' exp(k[b,s',c] + w[h,t,s'])

    Arguments
        q             (B, Tq, d), or (Tq, d) for a batch of one like k and v. None with gate="none": y then has as many
                      rows as the bias (for local too), or as v.
        k             (B, Tk, hk); hk divides d, and channel c uses key channel c / (d / hk).
        v             (B, Tk, d).
        bias          w: (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk), or aft.Factorized(u, v); H divides d, and channel c
                      uses head c / (d / H). Of the data's type, or float32 (float64 for float64 data).
        causal        True: key s is visible to query t iff s <= first_query + t.
        gate          "sigmoid", "none", "identity", "relu", "tanh" or "silu".
        outside       for local and conv: pairs outside count with bias 0 ("zero_bias") or not at all ("excluded").
        arithmetic    "automatic": products of 16-bit data may have operands of that type; "full": float32 throughout.
        mask          (B|1, Tq|1, Tk), (Tq|1, Tk) or (Tk) of bool, uint8 or int8: 0 hides the pair.
        key_lengths, query_lengths
                      (B) whole numbers, as an array of int32 or int64 or as a list: keys from there on are hidden, rows
                      from there on are padding, which gets 0.
        first_query   the position of query 0 among the keys.
        query_offsets, key_offsets
                      (N + 1) whole numbers: sequence n of q and y, and of k and v, is rows o[n] to o[n+1].
        stream        an aft.Stream: rows are the next positions of its slots. Needs causal=True.
        slot_ids      (B) whole numbers: the slot of each batch element, -1 skips it. None: slot b.
        threads       the most threads to use, 0: OpenMP's choice. Results do not depend on it.
        out           the array that y is written to, and that is returned. It may be q.
        return_lse, return_average
                      also return lse (B, Tq, hk), log sum_s exp(k + w), and the average before the gate (B, Tq, d), all
                      of float32, or float64 for float64 data: what a backward call can go on from. lse needs H to
                      divide hk: heads that share a key channel have no one lse.

    Arrays are NumPy's or of any library with __dlpack__, of float32, float64, float16 or bfloat16, all of data alike,
    with any strides, which are whole elements. They are read where they lie. Returns y (B, Tq, d) in the type of v, as
    a new row-major array of the library that q is of (k where q is None), or a tuple (y[, lse][, average]). Arrays on a
    GPU are those of a package that was built for it; the call is then on the current stream of q's library.

    Raises ValueError for arguments that do not fit, with the library's text; TypeError for what is no array;
    aft.DeviceError for arrays of a device; MemoryError. Nothing was written then. The result is exact to rounding for
    every finite input and bitwise the same for any number of threads. Cost: O(B Tq Tk d) multiply-adds, as a matrix
    product. Other Python threads run during the call.
    """
    return _core.forward(FULL, q, k, v, bias, None, causal, gate, outside, arithmetic, mask, key_lengths, query_lengths,
                         first_query, query_offsets, key_offsets, stream, slot_ids, threads, None,
                         True if out is None else out, True if return_lse else None, True if return_average else None)


@overload
def local(q: A | None, k: A, v: A, bias: Any, window: Window | tuple[int, int], *, return_lse: Literal[False] = ...,
          return_average: Literal[False] = ..., **options: Unpack[ForwardOptions]) -> A: ...
@overload
def local(q: A | None, k: A, v: A, bias: Any, window: Window | tuple[int, int], *, return_lse: Literal[True],
          return_average: Literal[True], **options: Unpack[ForwardOptions]) -> tuple[A, A, A]: ...
@overload
def local(q: A | None, k: A, v: A, bias: Any, window: Window | tuple[int, int], *, return_lse: bool = ...,
          return_average: bool = ..., **options: Unpack[ForwardOptions]) -> Any: ...
def local(q: Any, k: Any, v: Any, bias: Any, window: Any, *, causal: bool = False, gate: str = "sigmoid",
          outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
          query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None,
          stream: Stream | None = None, slot_ids: Any = None, threads: int = 0, out: Any = None,
          return_lse: bool = False, return_average: bool = False) -> Any:
    """AFT-local: aft.full with w[t,s] = 0 outside a window around t (AFT Eq. 4). Those keys still count.

    bias      as of aft.full, where entries outside are not read, or aft.Banded(w) with w (Tq, before + after + 1) or
              (H, Tq, before + after + 1).
    window    aft.strict(s), aft.inclusive(s) or aft.Window(before, after).

    All other arguments, results and errors are those of aft.full; "excluded" hides the keys outside.
    Cost: O(B Tq width d) multiply-adds, and O(B (Tq + Tk) d) for everything outside.
    """
    return _core.forward(LOCAL, q, k, v, bias, window, causal, gate, outside, arithmetic, mask, key_lengths,
                         query_lengths, first_query, query_offsets, key_offsets, stream, slot_ids, threads, None,
                         True if out is None else out, True if return_lse else None, True if return_average else None)


@overload
def simple(q: A | None, k: A, v: A, *, return_lse: Literal[False] = ..., return_average: Literal[False] = ...,
           **options: Unpack[ForwardOptions]) -> A: ...
@overload
def simple(q: A | None, k: A, v: A, *, return_lse: Literal[True], return_average: Literal[True],
           **options: Unpack[ForwardOptions]) -> tuple[A, A, A]: ...
@overload
def simple(q: A | None, k: A, v: A, *, return_lse: bool = ..., return_average: bool = ...,
           **options: Unpack[ForwardOptions]) -> Any: ...
def simple(q: Any, k: Any, v: Any, *, causal: bool = False, gate: str = "sigmoid", outside: str = "zero_bias",
           arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None, query_lengths: Any = None,
           first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None, stream: Stream | None = None,
           slot_ids: Any = None, threads: int = 0, out: Any = None, return_lse: bool = False,
           return_average: bool = False) -> Any:
    """AFT-simple: aft.full without a bias (AFT Eq. 5).

        y[b,t,c] = gate(q[b,t,c]) * sum_s exp(k[b,s,c]) v[b,s,c] / sum_s exp(k[b,s,c])

    All arguments, results and errors are those of aft.full. Cost: O(B (Tq + Tk) d); a mask that differs between queries
    makes it O(B Tq Tk d).
    """
    return _core.forward(SIMPLE, q, k, v, None, None, causal, gate, outside, arithmetic, mask, key_lengths,
                         query_lengths, first_query, query_offsets, key_offsets, stream, slot_ids, threads, None,
                         True if out is None else out, True if return_lse else None, True if return_average else None)


@overload
def conv(q: A | None, k: A, v: A, filter: Any, *, return_lse: Literal[False] = ...,
         return_average: Literal[False] = ..., **options: Unpack[ForwardOptions]) -> A: ...
@overload
def conv(q: A | None, k: A, v: A, filter: Any, *, return_lse: Literal[True], return_average: Literal[True],
         **options: Unpack[ForwardOptions]) -> tuple[A, A, A]: ...
@overload
def conv(q: A | None, k: A, v: A, filter: Any, *, return_lse: bool = ..., return_average: bool = ...,
         **options: Unpack[ForwardOptions]) -> Any: ...
def conv(q: Any, k: Any, v: Any, filter: Any, *, causal: bool = False, gate: str = "sigmoid",
         outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
         query_lengths: Any = None, first_query: int = 0, query_offsets: Any = None, key_offsets: Any = None,
         stream: Stream | None = None, slot_ids: Any = None, threads: int = 0, out: Any = None,
         return_lse: bool = False, return_average: bool = False) -> Any:
    """AFT-conv: aft.full with one learned bias per relative position, on a grid (AFT Eq. 6; DAFT Eq. 7, 8).

        w[h,t,s] = filter[h, s - t + left] where that is inside, 0 elsewhere; those keys still count

    filter    (H, taps) with q (B, T, d), k (B, T, hk), v (B, T, d), or without B; (H, kh, kw) with q (B, H, W, d);
              (H, kd, kh, kw) with q (B, D, H, W, d). H divides d. left = (taps - 1) / 2 on every axis; causal=True,
              for sequences only, makes left = taps - 1. It is a cross-correlation, as in every deep-learning framework.
              Or aft.SparseFilter(taps, values), in the time of aft.simple and O(B T d) for each tap.

    All other arguments, results and errors are those of aft.full; on grids a mask and lengths count points in row-major
    order, and lse and average have the grid's shape. "excluded" hides the keys outside the filter. Cost: O(B T taps d)
    multiply-adds, and O(B T d) for everything outside.
    """
    return _core.forward(CONV, q, k, v, filter, None, causal, gate, outside, arithmetic, mask, key_lengths,
                         query_lengths, first_query, query_offsets, key_offsets, stream, slot_ids, threads, None,
                         True if out is None else out, True if return_lse else None, True if return_average else None)
