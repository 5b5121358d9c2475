# SPDX-License-Identifier: Apache-2.0
"""The operators on tensors: what aft.full and the others are on arrays, with gradients."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import torch

import aft

from .ops.schema import CONV, FORWARD, FULL, LOCAL, OPERATORS, OUT, SIMPLE, Operator
from .states import state_of

Tensor = torch.Tensor
Bias = Union[Tensor, aft.Factorized, aft.Banded]
Integers = Union[Tensor, Sequence[int]]
# Looking an op up in torch.ops takes longer than handing it its arguments.
_FORWARD_OPS = {operator.name: operator.op(FORWARD) for operator in OPERATORS}
_OUT_OPS = {operator.name: operator.op(OUT) for operator in OPERATORS}


def _flat_bias(bias: Bias) -> tuple[str, Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    if isinstance(bias, aft.Factorized):
        return "factorized", None, bias.u, bias.v
    if isinstance(bias, aft.Banded):
        return "banded", bias.w, None, None
    return "dense", bias, None, None


def _integers(operator: Operator, name: str, values: Optional[Integers], v: Tensor) -> Optional[Tensor]:
    """A list, beside the data; offsets are read by the host. Neither is where torch.set_default_device says."""
    if values is None or isinstance(values, torch.Tensor):
        return values
    made = torch.tensor(values, device="cpu" if name.endswith("_offsets") else v.device)
    # Asked for int64 at once, torch.tensor would cut 2.5 down to 2. An empty list is of floats.
    if made.is_floating_point() and made.numel() > 0:
        raise TypeError(f"aft::{operator.name}: argument '{name}': expected whole numbers, got {values!r}")
    return made.to(torch.int64)


def _check_tensors(operator: Operator, q: Any, k: Any, v: Any) -> None:
    """The first of the data that is no tensor; further arguments PyTorch's dispatcher names."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) and (x is not None or name != "q"):
            raise TypeError(f"aft::{operator.name}: argument '{name}': expected a tensor, got {type(x).__name__}")


def _ends(window: Any) -> tuple[int, int]:
    """before and after of a window, which may be any pair."""
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"aft::local: argument 'window': expected an aft.Window, got {window!r}")
    return window[0], window[1]


def _has_one_lse(operator: Operator, k: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether a row has one lse for each key channel, as it can be kept: no heads of the bias share a channel."""
    for x in tensors:
        heads = x.shape[0] if operator is CONV else x.shape[-3] if x.dim() > 2 else 1
        # Without heads or channels the library has its say.
        if heads > 0 and k.shape[-1] % heads != 0:
            return False
    return True


def _call(operator: Operator, q: Optional[Tensor], k: Tensor, v: Tensor, bias: tuple[Any, ...], causal: bool, gate: str,
          outside: str, arithmetic: str, mask: Optional[Tensor], key_lengths: Optional[Integers],
          query_lengths: Optional[Integers], first_query: int, query_offsets: Optional[Integers],
          key_offsets: Optional[Integers], stream: Optional[aft.Stream], slot_ids: Optional[Integers], threads: int,
          out: Optional[Tensor], return_lse: bool, return_average: bool) -> Any:
    _check_tensors(operator, q, k, v)
    args = (q, k, v, *bias, mask, _integers(operator, "key_lengths", key_lengths, v),
            _integers(operator, "query_lengths", query_lengths, v),
            _integers(operator, "query_offsets", query_offsets, v),
            _integers(operator, "key_offsets", key_offsets, v), causal, gate, outside, arithmetic, first_query, threads)
    if stream is None and slot_ids is None and out is None:
        # A backward call needs what a forward call sums up. Without a gradient to come it would be memory for nothing.
        tensors = [x for x in bias if isinstance(x, torch.Tensor)]
        save = (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, *tensors))
                and _has_one_lse(operator, k, tensors))
        y, lse, average = _FORWARD_OPS[operator.name](*args, save or return_lse, save or return_average)
    else:
        if stream is not None and not isinstance(stream, aft.Stream):
            raise TypeError(f"aft::{operator.name}: argument 'stream': expected an aft.Stream, got {stream!r}")
        state = None if stream is None else state_of(stream)
        capacity = 0 if stream is None else stream.capacity or 0
        ids = _integers(operator, "slot_ids", slot_ids, v)
        y, lse, average = _OUT_OPS[operator.name](*args, return_lse, return_average, out, state, ids, capacity)
        y = y if out is None else out
    if not return_lse and not return_average:
        return y
    return (y, *((lse,) if return_lse else ()), *((average,) if return_average else ()))


def full(q: Optional[Tensor], k: Tensor, v: Tensor, bias: Bias, *, causal: bool = False, gate: str = "sigmoid",
         outside: str = "zero_bias", arithmetic: str = "automatic", mask: Optional[Tensor] = None,
         key_lengths: Optional[Integers] = None, query_lengths: Optional[Integers] = None, first_query: int = 0,
         query_offsets: Optional[Integers] = None, key_offsets: Optional[Integers] = None,
         stream: Optional[aft.Stream] = None, slot_ids: Optional[Integers] = None, threads: int = 0,
         out: Optional[Tensor] = None, return_lse: bool = False, return_average: bool = False) -> Any:
    """A learned bias for every pair of positions (AFT Eq. 2, factors Eq. 7; DAFT Eq. 5 and 6).

        y[b,t,c] = gate(q[b,t,c]) sum_s a[t,s,c] v[b,s,c],
        a[t,s,c] = exp(k[b,s,c] + w[t,s]) / sum_s' exp(k[b,s',c] + w[t,s'])

    Args:
        q: (B, Tq, d), or (Tq, d) for a batch of one; None where gate is "none".
        k: (B, Tk, hk); hk divides d, channel c uses key channel c / (d/hk).
        v: (B, Tk, d).
        bias: a tensor (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk), or aft.Factorized(u, v) of (Tq, n) and (Tk, n), with H
            in front or without; H divides d. Its dtype is that of the data, or float32 (float64 beside float64).
        causal: key s is visible to query t where s <= first_query + t.
        gate: "sigmoid", "none", "identity", "relu", "tanh" or "silu".
        outside: "zero_bias"; other values are for the operators with a window.
        arithmetic: "automatic", or "full" for float arithmetic on 16-bit data whatever it costs.
        mask: (B or 1, Tq or 1, Tk), (Tq or 1, Tk) or (Tk) of bool, uint8 or int8; 0 hides the pair.
        key_lengths, query_lengths: (B) of int64 or int32, or a sequence; what lies behind is hidden.
        first_query: the position of query 0 among the keys.
        query_offsets, key_offsets: (N + 1), where packed sequences begin; q and y are then (total, d).
        stream, slot_ids: go on from the slots of a stream, which the call moves forward.
        threads: the most threads; 0 is torch.get_num_threads(). Results do not depend on it.
        out: a tensor for y, of any strides but 0; then there is no gradient.
        return_lse, return_average: also return log sum_s exp(k + w), (B, Tq, hk), and the average before the gate,
            (B, Tq, d), both float32, or float64 of float64 data. They have no gradient.

    Data are float16, bfloat16, float32 or float64 tensors on the CPU, of any strides, and are not copied. Returns y,
    contiguous and of v's dtype, or (y[, lse][, average]).

    Differentiable once in q, k, v and bias; where a gradient is to come the call keeps lse and the average for it.
    Cost: O(B Tq Tk d) as a matrix product, O(T d) memory; backward about twice that.

    Raises:
        ValueError: shapes, dtypes or options that do not fit, with the argument's name. Nothing is written.
        RuntimeError: a tensor on a device that the package was not built for, or a second derivative.
    """
    return _call(FULL, q, k, v, _flat_bias(bias), causal, gate, outside, arithmetic, mask, key_lengths, query_lengths,
                 first_query, query_offsets, key_offsets, stream, slot_ids, threads, out, return_lse, return_average)


def local(q: Optional[Tensor], k: Tensor, v: Tensor, bias: Bias, window: aft.Window, *, causal: bool = False,
          gate: str = "sigmoid", outside: str = "zero_bias", arithmetic: str = "automatic",
          mask: Optional[Tensor] = None, key_lengths: Optional[Integers] = None,
          query_lengths: Optional[Integers] = None, first_query: int = 0, query_offsets: Optional[Integers] = None,
          key_offsets: Optional[Integers] = None, stream: Optional[aft.Stream] = None,
          slot_ids: Optional[Integers] = None, threads: int = 0, out: Optional[Tensor] = None,
          return_lse: bool = False, return_average: bool = False) -> Any:
    """A learned bias inside a window around each query, 0 outside it (AFT Eq. 4; DAFT Eq. 7).

    Args:
        bias: as in full, of which the entries inside the window count; or aft.Banded(w) with w (Tq, width) or
            (H, Tq, width), whose entry j of row t belongs to key t - before + j.
        window: aft.strict(s) for |t - s'| < s, aft.inclusive(s) for |t - s'| <= s, aft.Window(before, after).
        outside: "zero_bias", or "excluded" to hide the keys outside the window.

    Everything else, results and errors as in full. Cost: O(B T width d); the keys outside cost O(B T d) together.
    """
    before, after = _ends(window)
    return _call(LOCAL, q, k, v, (*_flat_bias(bias), before, after), causal, gate, outside, arithmetic, mask,
                 key_lengths, query_lengths, first_query, query_offsets, key_offsets, stream, slot_ids, threads, out,
                 return_lse, return_average)


def simple(q: Optional[Tensor], k: Tensor, v: Tensor, *, causal: bool = False, gate: str = "sigmoid",
           outside: str = "zero_bias", arithmetic: str = "automatic", mask: Optional[Tensor] = None,
           key_lengths: Optional[Integers] = None, query_lengths: Optional[Integers] = None, first_query: int = 0,
           query_offsets: Optional[Integers] = None, key_offsets: Optional[Integers] = None,
           stream: Optional[aft.Stream] = None, slot_ids: Optional[Integers] = None, threads: int = 0,
           out: Optional[Tensor] = None, return_lse: bool = False, return_average: bool = False) -> Any:
    """No position bias: w = 0 (AFT Eq. 5).

    Arguments, results and errors as in full. Cost: O(B T d).
    """
    return _call(SIMPLE, q, k, v, (), causal, gate, outside, arithmetic, mask, key_lengths, query_lengths, first_query,
                 query_offsets, key_offsets, stream, slot_ids, threads, out, return_lse, return_average)


def conv(q: Optional[Tensor], k: Tensor, v: Tensor, filter: Tensor, *, causal: bool = False, gate: str = "sigmoid",
         outside: str = "zero_bias", arithmetic: str = "automatic", mask: Optional[Tensor] = None,
         key_lengths: Optional[Integers] = None, query_lengths: Optional[Integers] = None, first_query: int = 0,
         query_offsets: Optional[Integers] = None, key_offsets: Optional[Integers] = None,
         stream: Optional[aft.Stream] = None, slot_ids: Optional[Integers] = None, threads: int = 0,
         out: Optional[Tensor] = None, return_lse: bool = False, return_average: bool = False) -> Any:
    """One learned bias for every relative position on a sequence, image or volume (AFT Eq. 6; DAFT Eq. 7 and 8).

    y at t reads key t + j - left with weight exp(filter[h, j]), and all other keys with weight 1. left is
    (taps - 1) / 2, rounded down, on each axis; of a causal filter, taps - 1.

    Args:
        q, k, v: (B, T, d), (B, height, width, d) or (B, depth, height, width, d), k with hk channels.
        filter: (H, taps), (H, kh, kw) or (H, kd, kh, kw); H divides d. The papers have hk = H.
        causal, first_query, stream: for sequences alone.
        outside: "zero_bias", or "excluded" to hide the keys beyond the filter.

    Everything else, results and errors as in full; masks and lengths count points in row-major order. Cost:
    O(B T taps d); all outside the filter costs O(B T d).
    """
    if isinstance(filter, aft.SparseFilter):
        raise TypeError("aft.torch.conv: a SparseFilter is no argument of an op: aft.conv takes it, of tensors without a gradient")
    return _call(CONV, q, k, v, (filter,), causal, gate, outside, arithmetic, mask, key_lengths, query_lengths,
                 first_query, query_offsets, key_offsets, stream, slot_ids, threads, out, return_lse, return_average)
