# SPDX-License-Identifier: Apache-2.0
"""What the library refuses, while a program is made: nothing looks at extents any more when it runs.

PyTorch would broadcast most of it. Extents may be symbols, which compare as what they stand for.
"""

from __future__ import annotations

from typing import Any, Sequence

from ..ops.schema import CONV, LOCAL, Operator

CHOICES = {"gate": ("sigmoid", "none", "identity", "relu", "tanh", "silu"), "outside": ("zero_bias", "excluded"),
           "arithmetic": ("automatic", "full")}


def expect(operator: Operator, name: str, what: str, got: Any, *expected: Any) -> None:
    """Raises ValueError where `got` is none of `expected`."""
    if all(got != one for one in expected):
        raise ValueError(f"aft::{operator.name}: argument '{name}': expected {what} to be "
                         f"{' or '.join(map(str, expected))}, got {got}")


def heads_of(operator: Operator, bias: Sequence[Any]) -> Any:
    """H of a call: 1 where a bias has no axis of heads."""
    if operator is CONV:
        return bias[0].shape[0]
    pairs = next((x for x in bias[1:3] if x is not None), None)
    return 1 if pairs is None or pairs.dim() < 3 else pairs.shape[-3]


def check(operator: Operator, q: Any, k: Any, v: Any, bias: Sequence[Any], option: dict[str, Any],
          return_lse: bool) -> None:
    """Data and options of a call; biases of pairs are looked at where they are made."""
    for name in ("query_offsets", "key_offsets"):
        if option[name] is not None:
            raise ValueError(f"aft::{operator.name}: argument '{name}': packed sequences have no decomposition")
    for name, choices in CHOICES.items():
        expect(operator, name, "the name", option[name], *choices)
    if operator not in (LOCAL, CONV):
        expect(operator, "outside", "the name without a window", option["outside"], "zero_bias")
    if option["first_query"] < 0:
        raise ValueError(f"aft::{operator.name}: argument 'first_query': expected 0 or more, got {option['first_query']}")
    if q is None:
        expect(operator, "gate", "the name without 'q'", option["gate"], "none")
    else:
        expect(operator, "q", "the rank", q.dim(), v.dim())
        expect(operator, "q", "the channels", q.shape[-1], v.shape[-1])
    expect(operator, "k", "the extents without channels", tuple(k.shape[:-1]), tuple(v.shape[:-1]))
    heads = heads_of(operator, bias)
    for name, count in (("k", k.shape[-1]), ("bias", heads)):
        if count == 0 or v.shape[-1] % count != 0:
            raise ValueError(f"aft::{operator.name}: argument '{name}': expected a divisor of {v.shape[-1]}, the "
                             f"channels of 'v', got {count}")
    if return_lse and k.shape[-1] % heads != 0:
        raise ValueError(f"aft::{operator.name}: argument 'lse': heads that share a key channel have no one lse")
    if v.dim() > 3:
        # Rows of a grid have no one order.
        expect(operator, "causal", "the value on a grid", option["causal"], False)
        expect(operator, "first_query", "the value on a grid", option["first_query"], 0)
        if q is not None:
            expect(operator, "q", "the extents", tuple(q.shape), tuple(v.shape))


def check_rows(operator: Operator, option: dict[str, Any], batch: Any, rows: Any, keys: Any) -> None:
    """Extents of what says which rows and keys are seen."""
    for name in ("key_lengths", "query_lengths"):
        if option[name] is not None:
            expect(operator, name, "the extents", tuple(option[name].shape), (batch,))
    mask = option["mask"]
    if mask is not None:
        expect(operator, "mask", "the rank", mask.dim(), 1, 2, 3)
        for extent, allowed in zip(reversed(mask.shape), ((keys,), (1, rows), (1, batch))):
            expect(operator, "mask", "an extent", extent, *allowed)
