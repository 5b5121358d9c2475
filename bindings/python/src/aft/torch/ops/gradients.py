# SPDX-License-Identifier: Apache-2.0
"""The derivative of each op is its backward op, which has none: a call is differentiable once.

What writes into the caller's tensors has no derivative at all, and says so where one is asked for.

torch.library.register_autograd would do the same; what it does about defaults and keyword arguments takes longer than a
small call.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from .kernels import KERNELS, count_writes
from .results import Tensors
from .schema import BACKWARD, FORWARD, LIBRARY, OPERATORS, OUT, TENSOR_OPTIONS, Arguments, Operator

_AFTER = torch._C._after_autograd_keyset


def _apply(function: Any, keyset: Any, args: Arguments) -> Any:
    """Records the call. Within torch.func's transforms this kernel runs at the level of one of them, which is what a
    function of a single level is for; torch.autograd.Function would begin at the first level again."""
    if not torch._C._are_functorch_transforms_active():
        return function.apply(keyset, *args)
    with enable_single_level_autograd_function():
        return function.apply(keyset, *args)


def _below(name: str) -> Callable[..., Any]:
    """Calls the op's kernel after autograd, whichever it is: one that traces, one without numbers, or the library's."""
    op, kernel = getattr(torch.ops.aft, name).default, KERNELS[name]

    def call(keyset: Any, args: Arguments) -> Any:
        rest = keyset & _AFTER
        # The dispatcher would turn all arguments into its own values and back.
        if rest.highestPriorityTypeId() == torch._C.DispatchKey.CPU:
            return kernel(*args)
        with torch._C._AutoDispatchBelowAutograd():
            if not torch._C._are_functorch_transforms_active():
                return op.redispatch(rest, *args)
            # Off the record at this level, but not at those around it, which have records of their own.
            with torch.enable_grad():
                return op.redispatch(rest, *args)

    return call


def _register(operator: Operator, role: str, derived: Callable[[Any, Arguments], Any]) -> None:
    """Has `derived` answer calls in which a gradient is to come."""
    name, defaults, places = operator.name + role, operator.defaults(role), operator.differentiable
    below = _below(name)
    if role == BACKWARD:
        places = (*places, operator.bias_end)
    if role == OUT:
        # y: writing into a tensor with a history would leave it a history of other numbers.
        places = (*places, len(defaults) - 4)

    def kernel(keyset: Any, *args: Any) -> Any:
        args += defaults[len(args):]
        if torch.is_grad_enabled():
            for place in places:
                x = args[place]
                if x is not None and x.requires_grad:
                    return derived(keyset, args)
        # Forward-mode derivatives do not ask for a gradient. A recorded call has none to give and says so.
        if forward_ad._current_level >= 0:
            return derived(keyset, args)
        if role == OUT:
            count_writes(*args[-4:-2])
        return below(keyset, args)

    LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


def _derived_forward(operator: Operator) -> Any:
    end, places = operator.bias_end, operator.differentiable
    tensors = (*places, *range(end, end + len(TENSOR_OPTIONS)))
    arguments = len(operator.defaults(FORWARD))
    below, backward_op = _below(operator.name), operator.op(BACKWARD)

    class Call(_SingleLevelFunction):
        """A forward call that a gradient is to come through."""

        @staticmethod
        def forward(ctx: Any, keyset: Any, *args: Any) -> Tensors:
            y, lse, average = below(keyset, args)
            # One alone serves no backward call, which sums both again then.
            saved = (lse, average) if args[-2] and args[-1] else (None, None)
            ctx.save_for_backward(*[args[place] for place in tensors], *saved)
            values = list(args[:-2])
            for place in tensors:
                values[place] = None
            ctx.values = values
            # Nothing would read zeros in place of gradients that are not there.
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(lse, average)
            return y, lse, average

        @staticmethod
        def backward(ctx: Any, dy: Any, dlse: Any, daverage: Any) -> Any:
            gradients: list[Any] = [None] * (1 + arguments)
            if dy is None:
                return tuple(gradients)
            *values, lse, average = ctx.saved_tensors
            args = list(ctx.values)
            for place, value in zip(tensors, values):
                args[place] = value
            wanted = [ctx.needs_input_grad[1 + place] for place in places]
            results = backward_op(*args[:end], dy, wanted, *args[end:], lse, average)
            for place, want, gradient in zip(places, wanted, results):
                gradients[1 + place] = gradient if want else None
            return tuple(gradients)

    return lambda keyset, args: _apply(Call, keyset, args)


def _derived_backward(operator: Operator) -> Any:
    below = _below(operator.name + BACKWARD)

    class Call(_SingleLevelFunction):
        """A backward call with create_graph=True: the gradients are there, their own derivative is not."""

        @staticmethod
        def forward(ctx: Any, keyset: Any, *args: Any) -> Tensors:
            return below(keyset, args)  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise RuntimeError(f"aft.torch.{operator.name} is differentiable once: its gradients have no derivative. "
                               "Second derivatives, as of create_graph=True, are not to be had.")

    return lambda keyset, args: _apply(Call, keyset, args)


def _refuse_out(operator: Operator) -> Any:
    def refuse(keyset: Any, args: Arguments) -> None:
        raise RuntimeError(f"aft.torch.{operator.name}: a call with a stream or with out= has no gradient, and one of "
                           "its tensors requires one. Use torch.no_grad().")

    return refuse


for _operator in OPERATORS:
    _register(_operator, FORWARD, _derived_forward(_operator))
    _register(_operator, BACKWARD, _derived_backward(_operator))
    _register(_operator, OUT, _refuse_out(_operator))
