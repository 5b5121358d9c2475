# SPDX-License-Identifier: Apache-2.0
"""Shapes and types of results, which the kernels allocate and the fake kernels promise: one rule for both."""

from __future__ import annotations

from typing import Optional, Tuple

import torch

from .schema import FULL, LOCAL, Arguments, Operator

Tensors = Tuple[torch.Tensor, ...]


def query_shape(operator: Operator, args: Arguments) -> tuple[int, ...]:
    """The extents of y but for its channels. Without q, as the gate "none" allows, the bias's rows say how many."""
    q, v = args[0], args[2]
    if q is not None:
        return tuple(q.shape[:-1])
    if operator in (FULL, LOCAL):
        kind, w, u = args[3:6]
        rows = u.shape[-2] if kind == "factorized" else w.shape[-2]
        return (*v.shape[:-2], rows)
    return tuple(v.shape[:-1])


def sum_type(like: torch.Tensor) -> torch.dtype:
    """The type of lse and average: that of sums, so that gradients from them are as exact as from the inputs."""
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def forward_results(operator: Operator, args: Arguments) -> Tensors:
    """Memory for y, lse and average; the last two of size 0 unless asked for."""
    k, v = args[1], args[2]
    return_lse, return_average = args[-2:]
    rows = query_shape(operator, args)
    sums = sum_type(v)
    y = v.new_empty((*rows, v.shape[-1]))
    lse = v.new_empty((*rows, k.shape[-1]) if return_lse else (0,), dtype=sums)
    average = v.new_empty((*rows, v.shape[-1]) if return_average else (0,), dtype=sums)
    return y, lse, average


def out_results(operator: Operator, args: Arguments) -> Tensors:
    """The same, without y where the caller has the memory for it: an op may not return what it was given."""
    y, lse, average = forward_results(operator, args[:-4])
    return y if args[-4] is None else y.new_empty((0,)), lse, average


def backward_results(operator: Operator, args: Arguments) -> Tensors:
    """Memory for the gradients, of size 0 where not wanted. A gradient has its input's shape and type."""
    v, wanted = args[2], args[operator.bias_end + 1]
    inputs: list[Optional[torch.Tensor]] = [args[place] for place in operator.differentiable]
    return tuple(v.new_empty((0,)) if x is None or not want else x.new_empty(x.shape)
                 for x, want in zip(inputs, wanted))
