# SPDX-License-Identifier: Apache-2.0
"""The operators in NumPy's float64, as the papers write them: every pair's weight, then sums (AFT Eq. 2, DAFT Eq. 3).

Weights are exp(k + w - their row's largest), which is exact to rounding for any input, and O(B T T d) memory.
"""

import numpy

GATES = {  # value and slope
    "none": (lambda q: numpy.ones_like(q), lambda q: numpy.zeros_like(q)),
    "identity": (lambda q: q, lambda q: numpy.ones_like(q)),
    "sigmoid": (lambda q: 1 / (1 + numpy.exp(-q)), lambda q: numpy.exp(-q) / (1 + numpy.exp(-q)) ** 2),
    "relu": (lambda q: numpy.maximum(q, 0), lambda q: (q > 0).astype(q.dtype)),
    "tanh": (numpy.tanh, lambda q: 1 - numpy.tanh(q) ** 2),
    "silu": (lambda q: q / (1 + numpy.exp(-q)),
             lambda q: (1 + q * numpy.exp(-q) / (1 + numpy.exp(-q))) / (1 + numpy.exp(-q))),
}


def spread(w, channels):
    """(..., H, Tq, Tk) to (..., Tq, Tk, channels): channel c has the bias of head c / (channels / H)."""
    return numpy.repeat(numpy.moveaxis(w, -3, -1), channels // w.shape[-3], axis=-1)


def local_bias(w, before, after):
    """Zero outside the window (AFT Eq. 4), for w of (..., Tq, Tk), and which pairs lie in it."""
    distance = numpy.arange(w.shape[-1]) - numpy.arange(w.shape[-2])[:, None]
    inside = (-before <= distance) & (distance <= after)
    return numpy.where(inside, w, 0), inside


def unband(w, keys, before):
    """A banded bias (..., Tq, width) as a dense one: entry j of row t belongs to key t - before + j."""
    dense = numpy.zeros((*w.shape[:-1], keys))
    for t in range(w.shape[-2]):
        for j in range(w.shape[-1]):
            s = t - before + j
            if 0 <= s < keys:
                dense[..., t, s] = w[..., t, j]
    return dense


def band(dense, width, before):
    """The transpose of unband."""
    w = numpy.zeros((*dense.shape[:-1], width))
    for t in range(dense.shape[-2]):
        for j in range(width):
            s = t - before + j
            if 0 <= s < dense.shape[-1]:
                w[..., t, j] = dense[..., t, s]
    return w


def conv_pairs(taps, points, causal):
    """For each pair of grid points the flat index of the filter's tap between them, or -1 (AFT Eq. 6)."""
    grid = numpy.stack(numpy.unravel_index(numpy.arange(numpy.prod(points)), points), axis=-1)
    left = [n - 1 if causal else (n - 1) // 2 for n in taps]
    tap = grid[None, :, :] - grid[:, None, :] + numpy.array(left)
    inside = ((tap >= 0) & (tap < numpy.array(taps))).all(axis=-1)
    flat = numpy.ravel_multi_index(tuple(numpy.moveaxis(numpy.where(inside[..., None], tap, 0), -1, 0)), taps)
    return numpy.where(inside, flat, -1)


def weights(k, w, visible):
    """a[b,t,s,c], and lse[b,t,c]; rows that see nothing are 0 and -inf. w is (1 or B, Tq, Tk, c)."""
    scores = numpy.where(visible[..., None], k[:, None] + w, -numpy.inf)
    largest = scores.max(axis=2, keepdims=True, initial=-numpy.inf)
    shifted = numpy.exp(scores - numpy.where(numpy.isinf(largest), 0, largest))
    total = shifted.sum(axis=2, keepdims=True)
    with numpy.errstate(divide="ignore"):
        lse = (numpy.log(total) + numpy.where(numpy.isinf(largest), 0, largest))[:, :, 0]
    return shifted / numpy.where(total == 0, 1, total), lse


def forward(q, k, v, w, visible, gate="sigmoid"):
    """y, lse and average of data (B, T, d). w is (H, Tq, Tk) or (B, H, Tq, Tk), visible (1 or B, Tq, Tk)."""
    d = v.shape[-1]
    wide = spread(w if w.ndim == 4 else w[None], d)
    a, lse = weights(numpy.repeat(k, d // k.shape[-1], axis=-1), wide, visible)
    average = numpy.einsum("btsc,bsc->btc", a, v)
    value = GATES[gate][0]
    return (average if gate == "none" else value(q) * average), lse, average


def backward(q, k, v, w, visible, dy, gate="sigmoid"):
    """dq, dk, dv and dw, which has the shape of w (with a batch axis kept where w has one)."""
    d, hk = v.shape[-1], k.shape[-1]
    batched = w if w.ndim == 4 else w[None]
    a, _ = weights(numpy.repeat(k, d // hk, axis=-1), spread(batched, d), visible)
    average = numpy.einsum("btsc,bsc->btc", a, v)
    value, slope = GATES[gate]
    dq = None if gate == "none" else dy * slope(q) * average
    g = dy if gate == "none" else dy * value(q)
    dscores = a * g[:, :, None] * (v[:, None] - average[:, :, None])
    dk = dscores.sum(axis=1).reshape(*k.shape[:2], hk, d // hk).sum(axis=-1)
    dv = numpy.einsum("btsc,btc->bsc", a, g)
    heads = batched.shape[1]
    dw = numpy.moveaxis(dscores.reshape(*dscores.shape[:3], heads, d // heads).sum(axis=-1), -1, 1)
    if w.ndim == 3:
        dw = dw.sum(axis=0)
    elif w.shape[0] == 1:
        dw = dw.sum(axis=0, keepdims=True)
    return dq, dk, dv, dw
