# SPDX-License-Identifier: Apache-2.0
"""Kernels without numbers: what torch.compile and torch.export trace with. Shapes may be symbols there."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .results import Tensors, backward_results, forward_results, out_results
from .schema import BACKWARD, FORWARD, LIBRARY, OPERATORS, OUT, Arguments, Operator


def _register(operator: Operator, role: str, results: Callable[[Operator, Arguments], Tensors]) -> None:
    arguments, defaults = operator.arguments(role), operator.defaults(role)

    def fake(*args: Any) -> Tensors:
        args += defaults[len(args):]
        v = args[2]
        for (_, name, _), x in zip(arguments, args):
            # Offsets are read by the host, wherever the data are.
            if isinstance(x, torch.Tensor) and x.device != v.device and not name.endswith("_offsets"):
                raise ValueError(f"aft::{operator.name}: argument '{name}': expected a tensor on {v.device} as 'v', "
                                 f"got one on {x.device}")
        return results(operator, args)

    torch.library.register_fake(f"aft::{operator.name}{role}", fake, lib=LIBRARY)


for _operator in OPERATORS:
    for _role, _results in ((FORWARD, forward_results), (BACKWARD, backward_results), (OUT, out_results)):
        _register(_operator, _role, _results)
