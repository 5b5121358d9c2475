# SPDX-License-Identifier: Apache-2.0
"""How far a result may be from the oracle: three times the error of the obvious loop in the same arithmetic, relative
to the size of the numbers behind it, eight units in the last place of that size, and half a unit of the type that it is
stored in (docs/adr/0006). No test has a tolerance of its own."""

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]
# Products of bfloat16 operands, where the processor has them and the call leaves the choice to the library
# (docs/adr/0010): both weights of a term and their product with v are rounded once each.
OPERAND_ROUNDING = 3 * 2.0 ** -8 * (1 + 4 * 2.0 ** -8)


def arithmetic_of(dtype):
    """The type that sums are in."""
    return np.float64 if dtype == np.float64 else np.float32


def wide_of(dtype):
    """One in which the oracle has no error to speak of."""
    return np.longdouble if dtype == np.float64 else np.float64


def ulp(dtype, x):
    """The spacing of a type's numbers at |x|."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.frexp(np.maximum(np.abs(np.asarray(x, np.longdouble)), np.longdouble(info.smallest_normal)))[1] - 1
    return np.ldexp(np.longdouble(info.eps), exponent)


class Judge:
    """The oracle and the obvious loop of one problem. given_lse: a backward call was told a rounded lse and average."""

    def __init__(self, problem, given_lse=False, operand_rounding=0.0):
        self.dtype = problem.v.dtype
        self.arithmetic = arithmetic_of(self.dtype)
        self.oracle, self.scale = problem.evaluate(wide_of(self.dtype))
        self.loop, _ = problem.evaluate(self.arithmetic)
        self.operand_rounding, self.given = operand_rounding, {}
        if given_lse:
            # Half a unit of lse is a relative error of every weight; half a unit of an average adds to every v - o.
            lse = self.oracle["lse"]
            relative = ulp(self.arithmetic, abs(lse[np.isfinite(lse)]).max(initial=1)) / 2
            moved = ulp(self.arithmetic, abs(self.oracle["average"]).max(initial=0)) / 2
            self.given = {name: size * relative + self.scale["dv"] * moved
                          for name, size in self.scale.items() if name[0] == "d"}

    def bound(self, name, storage):
        """The allowed error of every element."""
        exact, scale = self.oracle[name], np.asarray(self.scale[name])
        fits = np.isfinite(exact) & (scale > 0)
        with np.errstate(invalid="ignore"):
            errors = np.where(fits, abs(self.loop[name] - exact) / np.where(scale > 0, scale, 1), 0)
        allowed = scale * 3 * errors.max(initial=0) + 8 * ulp(self.arithmetic, scale)
        if storage.itemsize == 2:
            allowed = allowed + ulp(storage, np.where(np.isfinite(exact), exact, 0)) / 2 * (1 + 2.0 ** -8)
        if name in ("y", "average"):
            allowed = allowed + self.operand_rounding * scale
        return allowed + self.given.get(name, 0)

    def accept(self, name, got):
        """Fails the test where a result is not within its bound."""
        exact = self.oracle[name].reshape(got.shape)
        allowed = np.broadcast_to(self.bound(name, got.dtype), self.oracle[name].shape).reshape(got.shape)
        came = got.astype(exact.dtype)
        with np.errstate(invalid="ignore"):
            wrong = ~((abs(came - exact) <= allowed) | (came == exact))
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong))
            raise AssertionError(f"{name}{list(at)} is {came[at]}, not {exact[at]} within {allowed[at]}; "
                                 f"{int(wrong.sum())} of {wrong.size} elements are off")
