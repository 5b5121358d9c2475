# SPDX-License-Identifier: Apache-2.0
"""Shapes and types of results, which the kernels allocate and the fake kernels promise: one rule for both."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .schema import FULL, LOCAL, OPTIONS, Arguments, Operator

# Places among the options.
_QUERY_OFFSETS, _KEY_OFFSETS = OPTIONS.index("query_offsets"), OPTIONS.index("key_offsets")
Tensors = Tuple[torch.Tensor, ...]


def query_shape(operator: Operator, args: Arguments, streams: bool = False) -> tuple[int, ...]:
    """The extents of y but for its channels. Without q, as the gate "none" allows: those of v in a stream and where
    sequences are packed alike, else the bias's rows or those of v."""
    q, v = args[0], args[2]
    if q is not None:
        return tuple(q.shape[:-1])
    queries, keys = args[operator.bias_end + _QUERY_OFFSETS], args[operator.bias_end + _KEY_OFFSETS]
    if queries is not None and keys is not None and queries is not keys:
        # The rows are the last of the offsets, a number that nobody has who traces a program.
        last = _last_of(operator, queries)
        return tuple(v.shape[:-1]) if last < 0 else (*v.shape[:-2], last)
    if operator in (FULL, LOCAL) and not streams and queries is None:
        kind, w, u = args[3:6]
        rows = u.shape[-2] if kind == "factorized" else w.shape[-2]
        return (*v.shape[:-2], rows)
    return tuple(v.shape[:-1])


def _last_of(operator: Operator, offsets: torch.Tensor) -> int:
    if offsets.device.type != "cpu" or isinstance(offsets, FakeTensor):
        raise ValueError(f"aft::{operator.name}: argument 'q': expected a tensor, whose rows tell those of y before "
                         "'query_offsets' can be read, got None")
    # -1 where the library is about to refuse what it was given.
    if offsets.dtype not in (torch.int32, torch.int64) or offsets.dim() != 1 or offsets.numel() == 0:
        return -1
    return int(offsets[-1])


def sum_type(like: torch.Tensor) -> torch.dtype:
    """The type of lse and average: that of sums, so that gradients from them are as exact as from the inputs."""
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def forward_results(operator: Operator, args: Arguments, rows: Optional[tuple[int, ...]] = None) -> Tensors:
    """Memory for y, lse and average; the last two of size 0 unless asked for."""
    k, v = args[1], args[2]
    return_lse, return_average = args[-2:]
    rows = query_shape(operator, args) if rows is None else rows
    sums = sum_type(v)
    y = v.new_empty((*rows, v.shape[-1]))
    lse = v.new_empty((*rows, k.shape[-1]) if return_lse else (0,), dtype=sums)
    average = v.new_empty((*rows, v.shape[-1]) if return_average else (0,), dtype=sums)
    return y, lse, average


def out_results(operator: Operator, args: Arguments) -> Tensors:
    """The same, without y where the caller has the memory for it: an op may not return what it was given."""
    y, state = args[-4:-2]
    given = args[0] is None and y is not None
    rows = tuple(y.shape[:-1]) if given else query_shape(operator, args, state is not None)
    made, lse, average = forward_results(operator, args[:-4], rows)
    return made if y is None else made.new_empty((0,)), lse, average


def backward_results(operator: Operator, args: Arguments) -> Tensors:
    """Memory for the gradients, of size 0 where not wanted. A gradient has its input's shape and type."""
    v, wanted = args[2], args[operator.bias_end + 1]
    inputs: list[Optional[torch.Tensor]] = [args[place] for place in operator.differentiable]
    return tuple(v.new_empty((0,)) if x is None or not want else x.new_empty(x.shape)
                 for x, want in zip(inputs, wanted))
