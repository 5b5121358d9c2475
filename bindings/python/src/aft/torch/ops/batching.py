# SPDX-License-Identifier: Apache-2.0
"""torch.vmap: the mapped axis joins the batch where that is the same call, and is a loop where it is not.

It is the same call where only data and lengths are mapped: batch elements know nothing of one another. A bias, a
filter, a mask or offsets that differ from one element to the next, and a gradient of a bias that all elements share,
which would be summed over the batch, are separate calls.
"""

from __future__ import annotations

from typing import Any

import torch

from .schema import BACKWARD, CONV, FORWARD, LIBRARY, OPERATORS, OPTIONS, Operator

_FOLDABLE_OPTIONS = ("key_lengths", "query_lengths")


class _Batching:
    """The rule of one op."""

    def __init__(self, operator: Operator, role: str) -> None:
        self.operator, self.backward = operator, role == BACKWARD
        self.op = operator.op(role)
        self.defaults = operator.defaults(role)
        options = operator.bias_end + (2 if self.backward else 0)
        self.option = {name: options + i for i, name in enumerate(OPTIONS)}
        self.lengths = tuple(self.option[name] for name in _FOLDABLE_OPTIONS)
        # Tensors with a row of every batch element: data, and what a backward call gets of rows.
        saved = (operator.bias_end, len(self.defaults) - 2, len(self.defaults) - 1) if self.backward else ()
        self.rows = (0, 1, 2, *saved)

    def __call__(self, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        args = args + self.defaults[len(args):]
        dims = tuple(in_dims) + (None,) * (len(args) - len(in_dims))
        # The mapped axis first: what is left of a tensor is what one call would get.
        args = tuple(x.movedim(dim, 0) if isinstance(dim, int) else x for x, dim in zip(args, dims))
        mapped = tuple(isinstance(dim, int) for dim in dims)
        if self._is_one_call(args, mapped):
            return self._fold(info.batch_size, args, mapped)
        return self._loop(info.batch_size, args, mapped)

    def _rank(self, args: tuple[Any, ...], mapped: tuple[bool, ...]) -> int:
        """Axes of v in one call."""
        return int(args[2].dim()) - mapped[2]

    def _has_batch(self, args: tuple[Any, ...], mapped: tuple[bool, ...]) -> bool:
        spatial = args[3].dim() - 1 if self.operator is CONV else 1
        return self._rank(args, mapped) == spatial + 2

    def _is_one_call(self, args: tuple[Any, ...], mapped: tuple[bool, ...]) -> bool:
        if any(on and place not in self.rows and place not in self.lengths for place, on in enumerate(mapped)):
            return False
        if any(args[self.option[name]] is not None for name in ("query_offsets", "key_offsets")):
            return False
        mask = args[self.option["mask"]]
        if mask is not None and mask.dim() == 3 and mask.shape[0] != 1:
            return False
        bias = [args[place] for place in self.operator.differentiable[3:]]
        if self.operator is not CONV and any(x is not None and x.dim() == 4 and x.shape[0] != 1 for x in bias):
            return False
        wanted = args[self.operator.bias_end + 1] if self.backward else ()
        return not any(want and x is not None for want, x in zip(wanted[3:], bias))

    def _fold(self, count: int, args: tuple[Any, ...], mapped: tuple[bool, ...]) -> tuple[Any, Any]:
        has_batch = self._has_batch(args, mapped)
        call = list(args)
        for place in (*self.rows, *self.lengths):
            x = args[place]
            if x is None:
                continue
            if not mapped[place]:
                x = x.expand(count, *x.shape)
            # A call of rank 2 is a batch of one, whose lengths still have their axis.
            call[place] = x.flatten(0, 1) if has_batch or place in self.lengths else x
        results = self.op(*call)
        if not has_batch:
            out = results
        else:
            out = tuple(x if x.dim() == 1 else x.unflatten(0, (count, x.shape[0] // count)) for x in results)
        # Results that nobody asked for have one axis and belong to no element.
        return tuple(out), tuple(None if x.dim() == 1 else 0 for x in results)

    def _loop(self, count: int, args: tuple[Any, ...], mapped: tuple[bool, ...]) -> tuple[Any, Any]:
        calls = [self.op(*(x[i] if on else x for x, on in zip(args, mapped))) for i in range(count)]
        results = tuple(torch.stack(parts) for parts in zip(*calls))
        return results, (0,) * len(results)


# PyTorch 2.4 has no such rule for operators that are made in Python.
if hasattr(torch.library, "register_vmap"):
    for _operator in OPERATORS:
        for _role in (FORWARD, BACKWARD):
            torch.library.register_vmap(f"aft::{_operator.name}{_role}", _Batching(_operator, _role), lib=LIBRARY)
