# SPDX-License-Identifier: Apache-2.0
"""What makes a filter sparse."""

from __future__ import annotations

from typing import Any, TypeVar

from . import _core
from ._arguments import Array

A = TypeVar("A", bound=Array)


def filter_entropy(r: A, *, threads: int = 0, out: Any = None) -> A:
    """The entropy of each head of a filter, whose sum is a regulariser that makes filters sparse (AFT Eq. 9).

        out[h] = -sum_j p[j] log p[j],    p = softmax(r[h])

    r       (H, taps), (H, kh, kw) or (H, kd, kh, kw), any finite numbers; a tap of -inf adds nothing.
    out     where the result is written, (H); None: a new array of r's type.

    Sums are in double, and none of them cancels. Raises ValueError as the operators do. Cost: two passes over r.
    """
    result: A = _core.filter_entropy(r, threads, True if out is None else out)
    return result


def filter_entropy_backward(r: A, dout: A, *, threads: int = 0, out: Any = None) -> A:
    """Gradient of aft.filter_entropy (AFT Eq. 9): dr, of the shape and type of r.

    dout    (H).
    out     where dr is written; None: a new array.
    """
    result: A = _core.filter_entropy_backward(r, dout, threads, True if out is None else out)
    return result


def gumbel_filter(r: A, noise: A, tau: float, *, threads: int = 0, out: Any = None) -> A:
    """A filter times a sample of its own Gumbel softmax, which trains it towards one tap a head (AFT Eq. 10).

        out[h,j] = r[h,j] p[j],    p = softmax((r[h] + noise[h]) / tau)

    r       (H, taps), (H, kh, kw) or (H, kd, kh, kw).
    noise   of the shape of r: independent samples -log(-log(x)), x uniform in (0, 1), new ones for every step.
    tau     finite and above 0; the paper has 0.5.
    out     where the result is written, of the shape of r; None: a new array.

    aft.gumbel_filter_hard is the form of inference. Types may differ; sums are in double. Raises ValueError as the
    operators do. Cost: two passes over r.
    """
    result: A = _core.gumbel_filter(r, noise, tau, threads, True if out is None else out)
    return result


def gumbel_filter_backward(r: A, noise: A, tau: float, dout: A, *, threads: int = 0, out: Any = None) -> A:
    """Gradient of aft.gumbel_filter (AFT Eq. 10) for the same noise and tau: dr, of the shape and type of r.

    dout    of the shape of r.
    out     where dr is written; None: a new array.
    """
    result: A = _core.gumbel_filter_backward(r, noise, dout, tau, threads, True if out is None else out)
    return result


def gumbel_filter_hard(r: A, *, threads: int = 0, out: Any = None) -> A:
    """aft.gumbel_filter at inference: r at each head's largest tap, of equal ones the first, and 0 elsewhere.

    r       (H, taps), (H, kh, kw) or (H, kd, kh, kw).
    out     where the result is written, of the shape of r; None: a new array.
    """
    result: A = _core.gumbel_filter_hard(r, threads, True if out is None else out)
    return result
