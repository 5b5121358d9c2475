# SPDX-License-Identifier: Apache-2.0
"""Inside torch.autocast data take its type, as those of a matrix product do: q, k and v, but not double ones.

A bias of float stays one. It is read once for all channels, it may stand beside data of 16 bits, and its small
differences are what is learned.
"""

from __future__ import annotations

from typing import Any

import torch

from .schema import FORWARD, LIBRARY, OPERATORS, OUT, Arguments, Operator

_SHORT = (torch.float16, torch.bfloat16)


def cast(operator: Operator, args: Arguments, dtype: torch.dtype) -> Arguments:
    """The arguments with the types that a call under autocast has."""
    result = list(args)
    for place in operator.differentiable:
        x = args[place]
        if x is None or x.dtype == torch.float64:
            continue
        # The library knows a bias of the data's type or of float: another one of 16 bits follows the data.
        if place < 3 or x.dtype in _SHORT:
            result[place] = x.to(dtype)
    return tuple(result)


def _register(operator: Operator, role: str, device: str, key: str) -> None:
    op = operator.op(role)
    defaults = operator.defaults(role)
    below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(below):
            return op(*cast(operator, args + defaults[len(args):], torch.get_autocast_dtype(device)))

    LIBRARY.impl(operator.name + role, kernel, key)


for _operator in OPERATORS:
    for _role in (FORWARD, OUT):
        _register(_operator, _role, "cpu", "AutocastCPU")
        _register(_operator, _role, "cuda", "AutocastCUDA")
