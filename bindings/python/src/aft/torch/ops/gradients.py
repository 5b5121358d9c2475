# SPDX-License-Identifier: Apache-2.0
"""The derivative of each op is its backward op, which has none: a call is differentiable once.

What writes into the caller's tensors has no derivative at all, and says so where one is asked for.
"""

from __future__ import annotations

from typing import Any

import torch

from .results import Tensors
from .schema import BACKWARD, FORWARD, LIBRARY, OPERATORS, OUT, TENSOR_OPTIONS, Arguments, Operator


def _register_forward(operator: Operator) -> None:
    end = operator.bias_end
    arguments = len(operator.defaults(FORWARD))
    tensors = (*operator.differentiable, *range(end, end + len(TENSOR_OPTIONS)))
    backward_op = operator.op(BACKWARD)

    def setup_context(ctx: Any, inputs: Arguments, output: Tensors) -> None:
        _, lse, average = output
        # One alone serves no backward call, which sums both again then.
        saved = (lse, average) if inputs[-2] and inputs[-1] else (None, None)
        ctx.save_for_backward(*(inputs[place] for place in tensors), *saved)
        ctx.values = tuple(None if place in tensors else value for place, value in enumerate(inputs[:-2]))
        # Nothing would read zeros in place of gradients that are not there.
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse, average)

    def backward(ctx: Any, dy: Any, dlse: Any, daverage: Any) -> tuple[Any, ...]:
        gradients: list[Any] = [None] * arguments
        if dy is None:
            return tuple(gradients)
        args = list(ctx.values)
        *values, lse, average = ctx.saved_tensors
        for place, value in zip(tensors, values):
            args[place] = value
        # It is as long as what the caller passed: arguments that equal their defaults may be missing at the end.
        needed = ctx.needs_input_grad
        wanted = [place < len(needed) and needed[place] for place in operator.differentiable]
        results = backward_op(*args[:end], dy, wanted, *args[end:], lse, average)
        for place, want, gradient in zip(operator.differentiable, wanted, results):
            gradients[place] = gradient if want else None
        return tuple(gradients)

    torch.library.register_autograd(f"aft::{operator.name}", backward, setup_context=setup_context, lib=LIBRARY)


def _register_backward(operator: Operator) -> None:
    def refuse(ctx: Any, *gradients: Any) -> None:
        raise RuntimeError(f"aft.torch.{operator.name} is differentiable once: its gradients have no derivative. "
                           "Second derivatives, as of create_graph=True, are not to be had.")

    torch.library.register_autograd(f"aft::{operator.name}{BACKWARD}", refuse, lib=LIBRARY)


def _register_out(operator: Operator) -> None:
    op = operator.op(OUT)

    def kernel(keyset: Any, *args: Any) -> Any:
        inputs = [x for x in args if isinstance(x, torch.Tensor)]
        if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
            raise RuntimeError(f"aft.torch.{operator.name}: a call with a stream or with out= has no gradient, and one "
                               "of its tensors requires one. Use torch.no_grad().")
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    LIBRARY.impl(operator.name + OUT, kernel, "Autograd", with_keyset=True)


for _operator in OPERATORS:
    _register_forward(_operator)
    _register_backward(_operator)
    _register_out(_operator)
