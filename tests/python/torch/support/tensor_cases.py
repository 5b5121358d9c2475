# SPDX-License-Identifier: Apache-2.0
"""Calls of every operator and bias kind, small, and what the formulas say of them."""

import dataclasses
from typing import Any

import numpy
import tensor_oracle as oracle
import torch

import aft
import aft.torch

B, D, RANK = 2, 4, 3
WINDOW = aft.Window(2, 1)


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: the operator, the shapes of its bias's tensors, its data and its options."""

    name: str
    operator: str
    kind: str = ""
    bias: tuple = ()
    queries: tuple = (5,)
    keys: tuple = (5,)
    key_channels: int = D
    options: dict = dataclasses.field(default_factory=dict)

    def tensors(self, dtype=torch.float64, requires_grad=False, seed=0):
        """q, k, v and the bias's tensors."""
        draw = torch.Generator().manual_seed(seed)
        shapes = [(B, *self.queries, D), (B, *self.keys, self.key_channels), (B, *self.keys, D), *self.bias]
        return [torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)
                for shape in shapes]

    def call(self, q, k, v, *bias, **more):
        """The call of aft.torch."""
        made = {"factorized": aft.Factorized, "banded": aft.Banded}.get(self.kind, lambda w: w)(*bias) if bias else None
        window = (WINDOW,) if self.operator == "local" else ()
        args = () if self.operator == "simple" else (made,)
        return getattr(aft.torch, self.operator)(q, k, v, *args, *window, **{**self.options, **more})

    def op_arguments(self, q, k, v, *bias):
        """The positional arguments of torch.ops.aft's op up to the options."""
        if self.operator == "simple":
            return (q, k, v)
        if self.operator == "conv":
            return (q, k, v, *bias)
        pairs = (self.kind, None, *bias) if self.kind == "factorized" else (self.kind, *bias, None, None)
        return (q, k, v, *pairs, *((WINDOW.before, WINDOW.after) if self.operator == "local" else ()))

    def _points(self):
        return int(numpy.prod(self.queries)), int(numpy.prod(self.keys))

    def pairs(self, *bias):
        """w as (H, Tq, Tk) or (B, H, Tq, Tk), and the pairs that are seen, (1 or B, Tq, Tk)."""
        rows, columns = self._points()
        bias = [x.detach().double().numpy() for x in bias]
        inside = numpy.ones((rows, columns), bool)
        if self.operator == "simple":
            w = numpy.zeros((1, rows, columns))
        elif self.operator == "conv":
            taps = oracle.conv_pairs(bias[0].shape[1:], self.keys, self.options.get("causal", False))
            inside = taps >= 0
            w = numpy.where(inside, bias[0].reshape(bias[0].shape[0], -1)[:, taps], 0)
        else:
            w = {"dense": lambda: bias[0], "factorized": lambda: bias[0] @ numpy.swapaxes(bias[1], -1, -2),
                 "banded": lambda: oracle.unband(bias[0], columns, WINDOW.before)}[self.kind]()
            if self.operator == "local":
                w, inside = oracle.local_bias(w, WINDOW.before, WINDOW.after)
            w = w[None] if w.ndim == 2 else w
        return w, self._visible(inside)

    def _visible(self, inside):
        rows, columns = inside.shape
        seen = numpy.ones((1, rows, columns), bool)
        if self.options.get("causal"):
            seen = seen & (numpy.arange(columns) <= numpy.arange(rows)[:, None] + self.options.get("first_query", 0))
        if self.options.get("outside") == "excluded":
            seen = seen & inside
        if "mask" in self.options:
            seen = seen & (self.options["mask"].numpy() != 0)
        if "key_lengths" in self.options:
            seen = seen & (numpy.arange(columns) < numpy.array(self.options["key_lengths"])[:, None])[:, None]
        return seen

    def bias_gradients(self, dw, *bias):
        """What the gradient of the pairs is for the bias's own tensors."""
        bias = [x.detach().double().numpy() for x in bias]
        if self.operator == "simple":
            return []
        if self.operator == "conv":
            taps = oracle.conv_pairs(bias[0].shape[1:], self.keys, self.options.get("causal", False))
            dr = numpy.zeros((bias[0].shape[0], bias[0][0].size))
            for h in range(len(dr)):
                numpy.add.at(dr[h], taps[taps >= 0], dw[h][taps >= 0])
            return [dr.reshape(bias[0].shape)]
        if self.operator == "local":
            dw, _ = oracle.local_bias(dw, WINDOW.before, WINDOW.after)
        dw = dw.reshape(dw.shape[-2:]) if bias[0].ndim == 2 else dw
        if self.kind == "factorized":
            return [dw @ bias[1], numpy.swapaxes(dw, -1, -2) @ bias[0]]
        return [oracle.band(dw, bias[0].shape[-1], WINDOW.before) if self.kind == "banded" else dw]

    def expected(self, q, k, v, *bias):
        """y, lse and average of the formulas, in the tensors' shapes."""
        w, seen = self.pairs(*bias)
        flat = [x.detach().double().reshape(B, -1, x.shape[-1]).numpy() for x in (q, k, v)]
        y, lse, average = oracle.forward(*flat, w, seen, self.options.get("gate", "sigmoid"))
        shape = (B, *self.queries)
        lse = lse.reshape(*lse.shape[:2], self.key_channels, -1)[..., 0]
        return y.reshape(*shape, D), lse.reshape(*shape, -1), average.reshape(*shape, D)

    def expected_gradients(self, dy, q, k, v, *bias):
        """dq, dk, dv and the bias's gradients, in the tensors' shapes."""
        w, seen = self.pairs(*bias)
        flat = [x.detach().double().reshape(B, -1, x.shape[-1]).numpy() for x in (q, k, v)]
        dy = dy.detach().double().reshape(B, -1, D).numpy()
        *data, dw = oracle.backward(*flat, w, seen, dy, self.options.get("gate", "sigmoid"))
        shaped = [None if g is None else g.reshape(x.shape) for g, x in zip(data, (q, k, v))]
        return [*shaped, *self.bias_gradients(dw, *bias)]


def _with(case: Case, suffix: str, **changes: Any) -> Case:
    return dataclasses.replace(case, name=f"{case.name}-{suffix}", **changes)


_DENSE = Case("full-dense", "full", "dense", ((5, 5),))
_LOCAL = Case("local-dense", "local", "dense", ((2, 5, 5),))
_CONV = Case("conv", "conv", "", ((2, 3),), key_channels=2)
# One of every bias kind and rank: what has to hold for each of them is tried with these.
KINDS = [
    _DENSE,
    _with(_DENSE, "heads", bias=((2, 5, 5),)),
    _with(_DENSE, "batch", bias=((B, 1, 5, 5),)),
    Case("full-factorized", "full", "factorized", ((5, RANK), (5, RANK))),
    Case("full-factorized-heads", "full", "factorized", ((2, 5, RANK), (2, 5, RANK)), key_channels=2),
    _LOCAL,
    Case("local-factorized", "local", "factorized", ((5, RANK), (5, RANK))),
    Case("local-banded", "local", "banded", ((2, 5, WINDOW.before + WINDOW.after + 1),)),
    Case("simple", "simple"),
    _CONV,
    Case("conv-image", "conv", "", ((2, 3, 2),), queries=(3, 2), keys=(3, 2), key_channels=2),
    Case("conv-volume", "conv", "", ((1, 1, 2, 3),), queries=(2, 2, 2), keys=(2, 2, 2), key_channels=1),
]
_CAUSAL = {"causal": True}
# Options, one after the other, where they mean something.
OPTIONS = [
    *(_with(case, "causal", options=_CAUSAL) for case in KINDS if len(case.queries) == 1),
    *(_with(_DENSE, gate, options={"gate": gate}) for gate in oracle.GATES if gate != "sigmoid"),
    _with(_LOCAL, "excluded", options={"outside": "excluded"}),
    _with(_CONV, "excluded", options={"outside": "excluded", **_CAUSAL}),
    _with(_DENSE, "cross", queries=(3,), keys=(5,), bias=((3, 5),)),
    _with(_DENSE, "first-query", queries=(3,), bias=((3, 5),), options={"first_query": 2, **_CAUSAL}),
    _with(_DENSE, "mask", options={"mask": torch.tensor([[1, 0, 1, 1, 0]] * 4 + [[0] * 5], dtype=torch.uint8)}),
    _with(_DENSE, "key-lengths", options={"key_lengths": [3, 5]}),
    # Two heads to a key channel: there is no one lse to keep, and the backward call sums again.
    _with(_DENSE, "heads-share-keys", bias=((4, 5, 5),), key_channels=2),
]
CASES = KINDS + OPTIONS


def names(cases):
    return [case.name for case in cases]
