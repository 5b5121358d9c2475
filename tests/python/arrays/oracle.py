# SPDX-License-Identifier: Apache-2.0
"""The operators by their definition (AFT Eq. 2 to 6), in any floating type of NumPy's: sums over all pairs, in order.

In a wide type it is the oracle; in the type that the library computes in, it is the obvious loop, whose error is the
measure of what the library may have (docs/adr/0006). Both subtract the true maximum of k + w of a row and channel.
"""

import dataclasses
import itertools

import numpy as np


def total(x, axis):
    """A sum in order: NumPy's own is by pairs, which no plain loop is."""
    result = np.zeros(np.delete(x.shape, axis % x.ndim), x.dtype)
    for part in np.moveaxis(x, axis, 0):
        result = result + part
    return result


def gate_of(name, q):
    """A gate and its slope."""
    one = q.dtype.type(1)
    if name == "none":
        return np.ones_like(q), np.zeros_like(q)
    if name == "identity":
        return q, np.ones_like(q)
    if name == "relu":
        return np.maximum(q, 0), (q > 0).astype(q.dtype)
    if name == "tanh":
        return np.tanh(q), one - np.tanh(q) ** 2
    sigmoid = one / (one + np.exp(-q))
    if name == "sigmoid":
        return sigmoid, sigmoid * (one - sigmoid)
    assert name == "silu", name
    return q * sigmoid, sigmoid * (one + q * (one - sigmoid))


class NoBias:
    """AFT-simple."""
    tensors = ()

    def inside(self, _, tq, tk):
        return np.ones((tq, tk), bool)

    def matrix(self, number, batch, tq, tk):
        return np.zeros((batch, 1, tq, tk), number)

    def gradients(self, dw, magnitudes=False):
        return ()


@dataclasses.dataclass
class Dense(NoBias):
    """w[t,s], within a window where there is one."""
    w: np.ndarray
    window: tuple = None

    @property
    def tensors(self):
        return (self.w,)

    def inside(self, first, tq, tk):
        if self.window is None:
            return np.ones((tq, tk), bool)
        t, s = np.arange(tq)[:, None] + first, np.arange(tk)
        return (t - self.window[0] <= s) & (s <= t + self.window[1])

    def matrix(self, number, batch, tq, tk):
        w = self.w.astype(number)
        return np.broadcast_to(w.reshape((1,) * (4 - w.ndim) + w.shape),
                               (batch, w.shape[-3] if w.ndim > 2 else 1, tq, tk))

    def gradients(self, dw, magnitudes=False):
        if self.w.ndim == 4:
            return (dw,)
        dw = total(dw, 0)
        return (dw if self.w.ndim == 3 else total(dw, 0),)


@dataclasses.dataclass
class Factors(Dense):
    """w = u v^T."""
    w: None = None
    u: np.ndarray = None
    v: np.ndarray = None

    @property
    def tensors(self):
        return (self.u, self.v)

    def whole(self, number):
        return [np.atleast_3d(x.astype(number)) if x.ndim == 3 else x.astype(number)[None] for x in (self.u, self.v)]

    def matrix(self, number, batch, tq, tk):
        u, v = self.whole(number)
        w = total(u[:, :, None] * v[:, None], -1)
        return np.broadcast_to(w, (batch, *w.shape))

    def gradients(self, dw, magnitudes=False):
        dw = total(dw, 0)
        u, v = self.whole(dw.dtype)
        if magnitudes:
            u, v = abs(u), abs(v)
        du, dv = total(dw[..., None] * v[:, None], 2), total(dw[..., None] * u[:, :, None], 1)
        return tuple(g if x.ndim == 3 else total(g, 0) for g, x in ((du, self.u), (dv, self.v)))


@dataclasses.dataclass
class Band(Dense):
    """The window's rows: entry j of row t is key t - before + j."""
    first: int = 0

    def places(self, tq, tk):
        for t, j in itertools.product(range(tq), range(self.w.shape[-1])):
            s = self.first + t - self.window[0] + j
            if 0 <= s < tk:
                yield t, s, j

    def matrix(self, number, batch, tq, tk):
        w = self.w.astype(number).reshape(-1, *self.w.shape[-2:])
        m = np.zeros((batch, w.shape[0], tq, tk), number)
        for t, s, j in self.places(tq, tk):
            m[:, :, t, s] = w[:, t, j]
        return m

    def gradients(self, dw, magnitudes=False):
        dw = total(dw, 0)
        band = np.zeros((dw.shape[0], *self.w.shape[-2:]), dw.dtype)
        for t, s, j in self.places(*dw.shape[1:]):
            band[:, t, j] = dw[:, t, s]
        return (band if self.w.ndim == 3 else total(band, 0),)


@dataclasses.dataclass
class Filter(NoBias):
    """r[h, s - t + left] on a grid, whose points are counted in row-major order."""
    r: np.ndarray
    grid: tuple  # of the keys
    causal: bool = False
    first: int = 0

    @property
    def tensors(self):
        return (self.r,)

    def places(self, tq):
        taps = self.r.shape[1:]
        left = [n - 1 if self.causal else (n - 1) // 2 for n in taps]
        points = list(np.ndindex(*self.grid))
        queries = points if len(taps) > 1 else [(self.first + t,) for t in range(tq)]
        for t, at in enumerate(queries):
            for j in np.ndindex(*taps):
                s = tuple(a + i - l for a, i, l in zip(at, j, left))
                if all(0 <= a < n for a, n in zip(s, self.grid)):
                    yield t, np.ravel_multi_index(s, self.grid), j

    def inside(self, _, tq, tk):
        m = np.zeros((tq, tk), bool)
        for t, s, _ in self.places(tq):
            m[t, s] = True
        return m

    def matrix(self, number, batch, tq, tk):
        r = self.r.astype(number)
        m = np.zeros((batch, r.shape[0], tq, tk), number)
        for t, s, j in self.places(tq):
            m[:, :, t, s] = r[(slice(None), *j)]
        return m

    def gradients(self, dw, magnitudes=False):
        dw = total(dw, 0)
        dr = np.zeros(self.r.shape, dw.dtype)
        for t, s, j in self.places(dw.shape[1]):
            dr[(slice(None), *j)] += dw[:, t, s]
        return (dr,)


@dataclasses.dataclass
class Taps(NoBias):
    """A sparse filter: values[h,i] where s - t is taps[h,i] on a grid, 0 elsewhere."""
    taps: np.ndarray  # (H, m, axes)
    values: np.ndarray
    grid: tuple  # of the keys
    first: int = 0

    @property
    def tensors(self):
        return (self.values,)

    def places(self, tq):
        points = list(np.ndindex(*self.grid)) if len(self.grid) > 1 else [(self.first + t,) for t in range(tq)]
        for h, i in np.ndindex(self.values.shape):
            for t, at in enumerate(points):
                s = tuple(int(a + o) for a, o in zip(at, self.taps[h, i]))
                if all(0 <= a < n for a, n in zip(s, self.grid)):
                    yield h, i, t, np.ravel_multi_index(s, self.grid)

    def matrix(self, number, batch, tq, tk):
        m = np.zeros((batch, self.values.shape[0], tq, tk), number)
        for h, i, t, s in self.places(tq):
            m[:, h, t, s] = self.values[h, i]
        return m

    def gradients(self, dw, magnitudes=False):
        dw = total(dw, 0)
        dvalues = np.zeros(self.values.shape, dw.dtype)
        for h, i, t, s in self.places(dw.shape[1]):
            dvalues[h, i] += dw[h, t, s]
        return (dvalues,)


@dataclasses.dataclass
class Problem:
    """A call: q, k, v (B, T, channels), grids as sequences of their points; options as the package names them."""
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    bias: object
    dy: np.ndarray = None
    causal: bool = False
    gate: str = "sigmoid"
    outside: str = "zero_bias"
    mask: np.ndarray = None
    key_lengths: list = None
    query_lengths: list = None
    first_query: int = 0

    def visible(self):
        batch, tq, tk = self.q.shape[0], self.q.shape[1], self.k.shape[1]
        t, s = np.arange(tq)[:, None], np.arange(tk)
        seen = np.ones((batch, tq, tk), bool)
        if self.causal:
            seen &= s <= self.first_query + t
        if self.mask is not None:
            seen &= np.broadcast_to(self.mask, seen.shape) != 0
        if self.outside == "excluded":
            seen &= self.bias.inside(self.first_query, tq, tk)
        if self.key_lengths is not None:
            seen &= s < np.asarray(self.key_lengths)[:, None, None]
        if self.query_lengths is not None:
            seen &= t < np.asarray(self.query_lengths)[:, None, None]
        return seen

    def evaluate(self, number):
        """All results in that arithmetic, and the sums of the absolute values of their terms, by name."""
        q, k, v = (x.astype(number) for x in (self.q, self.k, self.v))
        (batch, tq, d), (_, tk, hk) = q.shape, k.shape
        inside, seen = self.bias.inside(self.first_query, tq, tk), self.visible()[..., None]
        w = np.where(inside, self.bias.matrix(number, batch, tq, tk), number(0))
        heads = w.shape[1]
        x = np.repeat(k, d // hk, -1)[:, None] + np.repeat(w, d // heads, 1).transpose(0, 2, 3, 1)
        x = np.where(seen, x, -np.inf).astype(number)
        most = x.max(2, initial=-np.inf)
        e = np.where(seen, np.exp(x - np.where(np.isfinite(most), most, 0)[:, :, None]), 0).astype(number)
        den = total(e, 2)
        some = np.where(den > 0, den, 1).astype(number)
        o = total(e * v[:, None], 2) / some
        with np.errstate(divide="ignore"):
            lse = np.where(den > 0, most + np.log(some), -np.inf).astype(number)
        gate, slope = gate_of(self.gate, q)
        largest = np.where(seen, abs(v)[:, None], 0).max(2, initial=0)
        result = {"y": gate * o, "average": o, "lse": lse[..., ::d // hk]}
        scale = {"y": largest * np.maximum(abs(gate), 1), "average": largest,
                 "lse": np.maximum(1, abs(np.where(np.isfinite(lse), lse, 0))).max(initial=1)}
        if self.dy is not None:
            self.differentiate(number, result, scale, a=e / some[:, :, None], v=v, o=o, slope=slope, gate=gate,
                               inside=inside, heads=heads, largest=largest)
        return result, scale

    def differentiate(self, number, result, scale, a, v, o, slope, gate, inside, heads, largest):
        dy = self.dy.astype(number)
        if self.query_lengths is not None:
            dy = np.where((np.arange(dy.shape[1]) < np.asarray(self.query_lengths)[:, None])[..., None], dy, number(0))
        (batch, tq, d), hk = dy.shape, self.k.shape[2]
        g = dy * gate
        to_v = a * g[:, :, None]
        pair = to_v * (v[:, None] - o[:, :, None])
        # A difference is as exact as what it is of: v, and an average that is as large as the largest v at most.
        sizes = abs(to_v) * (abs(v)[:, None] + largest[:, :, None])
        # A row's weights add up to 1 and are rounded against that, also where those of one tensor are tiny.
        row = abs(g).max(initial=0), (2 * abs(g) * largest).max(initial=0)

        def of_keys(x):
            return total(total(x, 1).reshape(batch, -1, hk, d // hk), -1)

        def of_bias(x):
            return total(x.transpose(0, 3, 1, 2).reshape(batch, heads, d // heads, tq, -1), 2) * inside

        result |= {"dq": dy * slope * o, "dv": total(to_v, 1), "dk": of_keys(pair)}
        scale |= {"dq": (abs(dy) * largest).max(initial=0), "dv": max(abs(to_v).sum(1).max(initial=0), row[0]),
                  "dk": max(of_keys(sizes).max(initial=0), row[1])}
        gradients, magnitudes = self.bias.gradients(of_bias(pair)), self.bias.gradients(of_bias(sizes), True)
        for i, (x, size) in enumerate(zip(gradients, magnitudes)):
            result[f"dbias{i}"], scale[f"dbias{i}"] = x, max(size.max(initial=0), row[1])
