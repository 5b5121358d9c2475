# SPDX-License-Identifier: Apache-2.0
"""What is beside the operators."""

from __future__ import annotations

from typing import Any, TypeVar

from . import _core
from ._arguments import Array

A = TypeVar("A", bound=Array)


def reparameterize(r: A, gain: A, shift: A, *, threads: int = 0, out: Any = None) -> A:
    """A filter of aft.conv as a normalised one with a gain and a shift for each head (AFT Eq. 8; DAFT Eq. 9).

        out[h,j] = gain[h] (r[h,j] - mean(r[h])) / std(r[h]) + shift[h]

    r       (H, taps), (H, kh, kw) or (H, kd, kh, kw).
    gain, shift   (H).
    out     where the result is written, of the shape of r; None: a new array.

    std is that of torch.std, with N - 1 below the root and no epsilon. A constant filter, or one of one tap, gives the
    shift. Types may differ; sums are in double. Raises ValueError as the operators do. Cost: three passes over r.
    """
    result: A = _core.reparameterize(r, gain, shift, threads, True if out is None else out)
    return result


def reparameterize_backward(r: A, gain: A, shift: A, dout: A, *, threads: int = 0, out: Any = None) -> tuple[A, A, A]:
    """Gradients of aft.reparameterize (AFT Eq. 8): (dr, dgain, dshift), of the shapes and types of r, gain and shift.

    dout    as the result. Of a constant filter, dr and dgain are 0.
    out     (dr, dgain, dshift): arrays that are overwritten, or None for what is not wanted. They are returned.
    """
    if out is not None and (not isinstance(out, tuple) or len(out) != 3):
        raise ValueError("aft::reparameterize_backward: argument 'out': expected a tuple of 3, one place for each "
                         f"gradient, got {out!r}")
    places = (True, True, True) if out is None else out
    result: tuple[A, A, A] = _core.reparameterize_backward(r, gain, shift, dout, threads, *places)
    return result


def attention_map(k: A, bias: Any, *, channels: int | None = None, causal: bool = False, mask: Any = None,
                  key_lengths: Any = None, query_lengths: Any = None, first_query: int = 0, threads: int = 0,
                  out: Any = None) -> A:
    """The weights that aft.full averages with and never forms (AFT Eq. 3), for plots and tests.

        out[b,t,s,c] = a[t,s,c] = exp(k[b,s,c] + w[h,t,s]) / sum_s' exp(k[b,s',c] + w[h,t,s'])

    k           (B, Tk, hk), or (Tk, hk): the result then has no axis B.
    bias        (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk), or aft.Factorized(u, v).
    channels    of the result: a multiple of hk that H divides; None: hk.
    out         (B, Tq, Tk, channels) of any of the four types, which is written; None: a new array of k's type.

    The options are those of aft.full. A hidden pair is 0, and so is a row that sees nothing. Arithmetic is in double.
    Raises ValueError as the operators do. Cost: O(B Tq Tk channels) exponentials on one thread.
    """
    result: A = _core.attention_map(k, bias, channels, causal, "sigmoid", "zero_bias", "automatic", mask, key_lengths,
                                    query_lengths, first_query, None, None, None, None, threads, None,
                                    True if out is None else out)
    return result


def isa() -> str:
    """The level of instructions whose kernels run here, "v3" for instance: the fastest that this processor has.

    The environment's AFT_ISA (v2, v3, v4, v4-bf16, neon, neon-bf16) caps it, read once.
    """
    return _core.isa()


def build_info() -> str:
    """One line about how the kernels that run were compiled: version, instruction set, OpenMP, compiler."""
    return _core.build_info()
