# SPDX-License-Identifier: Apache-2.0
"""The ops as functions of PyTorch's own, for programs of torch.export."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Sequence

import torch

from ..ops.results import query_shape, sum_type
from ..ops.schema import FORWARD, OPERATORS, OPTIONS, Operator
from .checks import check, check_rows, expect
from .pairs import bias_pairs, both, visible_pairs
from .sums import averages

Tensor = torch.Tensor
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda q: q,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": torch.nn.functional.silu,
}


def forward(operator: Operator, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What torch.ops.aft's op of that operator returns, by standard operators (AFT Eq. 2, 4, 5, 6).

    Cost: O(B Tq Tk d); memory O(B H Tq Tk + B T d), O(B Tq Tk hk) where k + w spread over more than 20 in a row.
    Raises ValueError for packed sequences, extents that do not fit, and an lse that is not one number.
    """
    args += operator.defaults(FORWARD)[len(args):]
    q, k, v, *bias = args[:operator.bias_end]
    option = dict(zip(OPTIONS, args[operator.bias_end:-2]))
    return_lse, return_average = args[-2:]
    check(operator, q, k, v, bias, option, return_lse)
    shape, sums = query_shape(operator, args), sum_type(v)
    inputs: list[Any] = [x if x is None else x.to(sums) for x in (q, k, v)]
    # A batch of one has no axis for it where data are (T, d).
    if v.dim() == 2:
        inputs = [x if x is None else x[None] for x in inputs]
    q, k, v = inputs
    batch, rows, points = v.shape[0], shape[-(v.dim() - 2):], v.shape[1:-1]
    k, v = k.flatten(1, -2), v.flatten(1, -2)
    causal, first_query = option["causal"], option["first_query"]
    count = math.prod(rows)
    if q is not None:
        expect(operator, "q", "the batch", q.shape[0], batch)
    check_rows(operator, option, batch, count, k.shape[1])
    bias = [x.to(sums) if isinstance(x, torch.Tensor) else x for x in bias]
    w, inside = bias_pairs(operator, bias, rows, points, causal, first_query)
    if w is not None:
        expect(operator, "w", "the batch", w.shape[0], 1, batch)
    column, pair = visible_pairs(option["mask"], option["key_lengths"], causal, first_query, count, k.shape[1],
                                 v.device)
    if option["outside"] == "excluded" and inside is not None:
        pair = both(pair, inside[None, None])
    average, lse = averages(k, v, w, column, pair)
    average, lse = average.expand(batch, count, -1), lse.expand(batch, count, -1)
    y = average if q is None or option["gate"] == "none" else GATES[option["gate"]](q.flatten(1, -2)) * average
    if option["query_lengths"] is not None:
        # Rows of padding may hold anything: what was computed of them is dropped.
        row = (torch.arange(count, device=v.device) < option["query_lengths"][:, None])[..., None]
        y, average, lse = (torch.where(row, x, hidden) for x, hidden in ((y, 0), (average, 0), (lse, -torch.inf)))
    empty = v.new_empty((0,))
    return (_result(y, shape).to(args[2].dtype), _result(lse, shape) if return_lse else empty,
            _result(average, shape) if return_average else empty)


def _result(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """Rows in the shape of the call; a copy, since an op's results are memory of their own."""
    return x.reshape(*shape, x.shape[-1]).clone()


TABLE = {operator.op(FORWARD): functools.partial(forward, operator) for operator in OPERATORS}


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program of torch.export without ops of aft, in which PyTorch's own compute the same (AFT Eq. 2, 4, 5, 6).

    Sums are in float32, in float64 for float64 data. Cost: O(B Tq Tk d) multiply-adds for any bias; memory
    O(B H Tq Tk + B T d), O(B Tq Tk hk) where k + w spread over more than 20 in a row.

    Raises ValueError, naming them, where the program has ops that go on from a stream, write into memory of the caller
    or compute gradients, for packed sequences, and for arguments that do not fit.
    """
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aft" \
                    and node.target not in TABLE:
                raise ValueError(f"{node.target}: no decomposition: streams, out= and gradients have none")
    made: torch.export.ExportedProgram = program.run_decompositions({**torch.export.default_decompositions(), **TABLE})
    return made
