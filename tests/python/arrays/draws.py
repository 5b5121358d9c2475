# SPDX-License-Identifier: Apache-2.0
"""Problems of random numbers, the same in every run, and the calls of the package that compute them."""

import dataclasses
import zlib

import numpy as np

import aft
import oracle

BATCH, LENGTH, CHANNELS, KEY_CHANNELS, HEADS, FACTORS = 2, 9, 8, 4, 2, 3
WINDOW = (3, 2)
OPERATORS = ("full", "full factorized", "local", "local factorized", "local banded", "simple", "conv", "conv 2d",
             "conv 3d", "conv sparse", "conv sparse 2d")
GRIDS = {"conv 2d": ((3, 4), (3, 2)), "conv 3d": ((2, 3, 2), (2, 3, 1)), "conv sparse 2d": ((3, 4), None)}
TAPS = 3


class Draw:
    """Random arrays of a type, from a seed that names what they are for."""

    def __init__(self, dtype, *seed):
        self.dtype, self.random = np.dtype(dtype), np.random.default_rng(zlib.crc32(repr(seed).encode()))

    def __call__(self, *shape, scale=1.0):
        return (scale * self.random.standard_normal(shape)).astype(self.dtype)


@dataclasses.dataclass
class Case:
    """A problem, with the operator that computes it."""
    operator: str
    problem: oracle.Problem
    grid: tuple = None

    @property
    def function(self):
        return self.operator.split()[0]

    def shaped(self, x):
        """On a grid, the axes of its points."""
        return x if self.grid is None or len(self.grid) == 1 else x.reshape(x.shape[0], *self.grid, x.shape[-1])

    def options(self):
        p = self.problem
        return {"causal": p.causal, "gate": p.gate, "outside": p.outside, "mask": p.mask, "key_lengths": p.key_lengths,
                "query_lengths": p.query_lengths, "first_query": p.first_query}

    def bias(self):
        b = self.problem.bias
        if isinstance(b, oracle.Factors):
            return (aft.Factorized(b.u, b.v),)
        if isinstance(b, oracle.Band):
            return (aft.Banded(b.w),)
        if isinstance(b, oracle.Taps):
            return (aft.SparseFilter(b.taps if len(b.grid) > 1 else b.taps[..., 0], b.values),)
        return b.tensors

    def operands(self):
        """What comes between v and the keywords."""
        window = (aft.Window(*self.problem.bias.window),) if self.function == "local" else ()
        return (*self.bias(), *window)

    def forward(self, **keywords):
        p = self.problem
        return getattr(aft, self.function)(*(self.shaped(x) for x in (p.q, p.k, p.v)), *self.operands(),
                                           **{**self.options(), **keywords})

    def backward(self, **keywords):
        p = self.problem
        return getattr(aft, f"{self.function}_backward")(*(self.shaped(x) for x in (p.q, p.k, p.v)), *self.operands(),
                                                         self.shaped(p.dy), **{**self.options(), **keywords})


def flat(gradients):
    """Gradients by the oracle's names."""
    dq, dk, dv, *dbias = gradients
    tensors = [x for g in dbias
               for x in (g[1:] if isinstance(g, aft.SparseFilter) else g if isinstance(g, tuple) else (g,))]
    return {"dq": dq, "dk": dk, "dv": dv, **{f"dbias{i}": x for i, x in enumerate(tensors)}}


def bias_for(draw, operator, tq, tk, heads=HEADS, first=0, causal=False):
    """The bias of an operator, and its grid. Windows of the other kinds are drawn whole."""
    if operator == "simple":
        return oracle.NoBias(), None
    if operator.startswith("conv sparse"):
        grid = GRIDS[operator][0] if operator in GRIDS else (tk,)
        # Offsets that lead nowhere are among them, and each is there once in a head.
        offsets = np.array(list(np.ndindex(*(3 if causal else 5 for _ in grid)))) - 2
        taps = np.array([draw.random.permutation(offsets)[:TAPS] for _ in range(heads)], np.int32)
        return oracle.Taps(taps, draw(heads, TAPS), grid, first), grid
    if operator in GRIDS:
        grid, taps = GRIDS[operator]
        return oracle.Filter(draw(heads, *taps), grid), grid
    if operator == "conv":
        return oracle.Filter(draw(heads, 4), (tk,), causal, first), (tk,)
    window = WINDOW if operator.startswith("local") else None
    if operator.endswith("factorized"):
        return oracle.Factors(window=window, u=draw(heads, tq, FACTORS), v=draw(tk, FACTORS)), None
    if operator.endswith("banded"):
        return oracle.Band(draw(heads, tq, sum(WINDOW) + 1), window, first), None
    return oracle.Dense(draw(heads, tq, tk), window), None


def case(operator, dtype, *seed, tq=LENGTH, tk=LENGTH, d=CHANNELS, hk=KEY_CHANNELS, heads=HEADS, batch=BATCH, scale=1.0,
         **options):
    """A problem of an operator."""
    draw = Draw(dtype, operator, str(dtype), *seed)
    bias, grid = bias_for(draw, operator, tq, tk, heads, options.get("first_query", 0), options.get("causal", False))
    if operator in GRIDS:
        tq = tk = int(np.prod(grid))
    problem = oracle.Problem(draw(batch, tq, d), draw(batch, tk, hk, scale=scale), draw(batch, tk, d), bias,
                             draw(batch, tq, d), **options)
    return Case(operator, problem, grid)
