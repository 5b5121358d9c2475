# SPDX-License-Identifier: Apache-2.0
"""The ops on memory: results are PyTorch's, the library writes into them, and no tensor is copied.

Tensors arrive with any strides. The threads of a call are torch.get_num_threads() unless it says another number, so
that torch.set_num_threads and the one thread of a DataLoader's worker count here too.
"""

from __future__ import annotations

from typing import Any

import torch

import aft

from .results import backward_results, forward_results
from .schema import BACKWARD, FORWARD, FULL, LIBRARY, LOCAL, OPERATORS, OPTIONS, Arguments, Operator

_FUNCTIONS = {operator.name: (getattr(aft, operator.name), getattr(aft, operator.name + "_backward"))
              for operator in OPERATORS}


def bias_arguments(operator: Operator, args: Arguments) -> tuple[Any, ...]:
    """What stands between v and the options in the library's call."""
    if operator in (FULL, LOCAL):
        kind, w, u, x = args[3:7]
        bias = w if kind == "dense" else aft.Banded(w) if kind == "banded" else aft.Factorized(u, x)
        return (bias, aft.Window(args[7], args[8])) if operator is LOCAL else (bias,)
    return args[3:operator.bias_end]


def options(values: Arguments) -> dict[str, Any]:
    """The options by their names, with this thread's number of threads."""
    named = dict(zip(OPTIONS, values))
    named["threads"] = named["threads"] or torch.get_num_threads()
    return named


def _plain(args: Arguments) -> Arguments:
    # An exporter refuses tensors that require a gradient, which is PyTorch's own business here.
    return tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in args)


def _register(operator: Operator) -> None:
    forward_call, backward_call = _FUNCTIONS[operator.name]
    forward_defaults, backward_defaults = operator.defaults(FORWARD), operator.defaults(BACKWARD)
    end = operator.bias_end

    def forward(*args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        args = _plain(args + forward_defaults[len(args):])
        y, lse, average = forward_results(operator, args)
        return_lse, return_average = args[-2:]
        forward_call(*args[:3], *bias_arguments(operator, args), **options(args[end:-2]), out=y,
                     lse=lse if return_lse else None, average=average if return_average else None)
        return y, lse, average

    def backward(*args: Any) -> tuple[torch.Tensor, ...]:
        args = _plain(args + backward_defaults[len(args):])
        results = backward_results(operator, args)
        backward_call(*args[:3], *bias_arguments(operator, args), args[end], **options(args[end + 2:-2]),
                      lse=args[-2], average=args[-1], out=results)
        return results

    for key in ("CPU", "CUDA"):
        LIBRARY.impl(operator.name, forward, key)
        LIBRARY.impl(operator.name + "_backward", backward, key)


for _operator in OPERATORS:
    _register(_operator)
