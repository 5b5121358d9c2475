# SPDX-License-Identifier: Apache-2.0
"""What PyTorch is told of each operator: names, arguments in their order, defaults, results.

A schema is flat. A bias is the name of its kind and up to three tensors, a window two integers, and what the library
calls an enumeration is its name. Everything is positional, since neither autograd nor vmap of PyTorch takes tensors
that are keyword-only.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Tuple

import torch

Arguments = Tuple[Any, ...]
# In the place of the default of an argument that has none.
_REQUIRED = object()
_OPTIONS = (
    ("Tensor?", "mask", None),
    ("Tensor?", "key_lengths", None),
    ("Tensor?", "query_lengths", None),
    ("Tensor?", "query_offsets", None),
    ("Tensor?", "key_offsets", None),
    ("bool", "causal", False),
    ("str", "gate", "sigmoid"),
    ("str", "outside", "zero_bias"),
    ("str", "arithmetic", "automatic"),
    ("SymInt", "first_query", 0),
    ("SymInt", "threads", 0),
)
_RETURNS = (("bool", "return_lse", False), ("bool", "return_average", False))
_SAVED = (("Tensor?", "lse", None), ("Tensor?", "average", None))
_WRITTEN = (("Tensor(a!)?", "out", None), ("Tensor(b!)?", "state", None), ("Tensor?", "slot_ids", None),
            ("SymInt", "capacity", 0))
_PAIRS = (("str", "kind", "dense"), ("Tensor?", "w", None), ("Tensor?", "u", None), ("Tensor?", "x", None))

OPTIONS = tuple(name for _, name, _ in _OPTIONS)
TENSOR_OPTIONS = OPTIONS[:5]
FORWARD, BACKWARD, OUT = "", "_backward", "_out"


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """One of the four operators: what its three ops are called and how their arguments lie.

    - forward, `full`: q, k, v, those of `bias`, the options, return_lse, return_average. It has a gradient.
    - backward, `full_backward`: q, k, v, those of `bias`, dy, wanted, the options, lse, average.
    - out, `full_out`: the arguments of forward, then out, state, slot_ids, capacity. It writes y into out where it is
      given, and goes on from the slots in state, which it moves forward. It has no gradient.
    """

    name: str
    bias: tuple[tuple[str, str, Any], ...]

    @property
    def bias_end(self) -> int:
        """Where the arguments that say the bias end."""
        return 3 + len(self.bias)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """Places of the arguments that have a gradient, in the order of the backward op's results."""
        tensors = (3 + i for i, (kind, _, _) in enumerate(self.bias) if kind.startswith("Tensor"))
        return (0, 1, 2, *tensors)

    def arguments(self, role: str) -> tuple[tuple[str, str, Any], ...]:
        """Type, name and default of every argument of the op in that role."""
        inputs = (("Tensor?", "q", _REQUIRED), ("Tensor", "k", _REQUIRED), ("Tensor", "v", _REQUIRED), *self.bias)
        if role == BACKWARD:
            # dy has no default, so that nothing before it can have one.
            inputs = tuple((kind, name, _REQUIRED) for kind, name, _ in inputs)
            return (*inputs, ("Tensor", "dy", _REQUIRED), ("bool[]", "wanted", _REQUIRED), *_OPTIONS, *_SAVED)
        return (*inputs, *_OPTIONS, *_RETURNS, *(_WRITTEN if role == OUT else ()))

    def schema(self, role: str) -> str:
        """The op's declaration."""

        def declare(kind: str, name: str, default: Any) -> str:
            if default is _REQUIRED:
                return f"{kind} {name}"
            return f"{kind} {name}=" + (f'"{default}"' if isinstance(default, str) else str(default))

        count = len(self.differentiable) if role == BACKWARD else 3
        arguments = ", ".join(declare(*argument) for argument in self.arguments(role))
        return f"{self.name}{role}({arguments}) -> ({', '.join(['Tensor'] * count)})"

    def defaults(self, role: str) -> Arguments:
        """A value for every place, for kernels: PyTorch hands them no trailing argument that equals its default."""
        return tuple(None if value is _REQUIRED else value for _, _, value in self.arguments(role))

    def op(self, role: str = FORWARD) -> Any:
        """The op of torch.ops.aft."""
        return getattr(torch.ops.aft, self.name + role).default


FULL = Operator("full", _PAIRS)
LOCAL = Operator("local", (*_PAIRS, ("SymInt", "before", 0), ("SymInt", "after", 0)))
SIMPLE = Operator("simple", ())
CONV = Operator("conv", (("Tensor", "filter", _REQUIRED),))
OPERATORS = (FULL, LOCAL, SIMPLE, CONV)

# PyTorch has no types for it.
_library: Any = torch.library
LIBRARY: Any = _library.Library("aft", "DEF")
# Kernels take any strides, so a compiler may lay inputs out as it likes. PyTorch 2.4 has no word for it.
TAGS = tuple(getattr(torch.Tag, tag) for tag in ("pt2_compliant_tag", "flexible_layout") if hasattr(torch.Tag, tag))
for _operator in OPERATORS:
    for _role in (FORWARD, BACKWARD, OUT):
        LIBRARY.define(_operator.schema(_role), tags=TAGS)
