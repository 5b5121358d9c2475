# SPDX-License-Identifier: Apache-2.0
"""The operators for JAX on the CPU: under jit, vmap and grad, by calls back to the library.

    import jax
    import aft.jax

    loss = lambda w: aft.jax.full(q, k, v, w, causal=True).sum()
    jax.jit(jax.grad(loss))(w)

Arguments are those of aft.full, aft.local, aft.simple and aft.conv; aft.Factorized, aft.Banded and aft.SparseFilter of JAX arrays are pytrees
and have gradients as such. Results are on the CPU: an array elsewhere is copied there and back. Once differentiable, in reverse. vmap
calls the library once for each element. Streams and packed sequences are aft's own.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _backward, _forward
from ._arguments import Banded, Factorized, SparseFilter, Window

__all__ = ["conv", "full", "local", "simple"]


class _Static(NamedTuple):
    """What a call is compiled for."""

    operator: str
    window: Window | None
    causal: bool
    gate: str
    outside: str
    arithmetic: str
    first_query: int
    threads: int

    def keywords(self) -> dict[str, Any]:
        return {"causal": self.causal, "gate": self.gate, "outside": self.outside, "arithmetic": self.arithmetic,
                "first_query": self.first_query, "threads": self.threads}


def _numpy(tree: Any) -> Any:
    return jax.tree_util.tree_map(np.asarray, tree)


def _between(static: _Static, bias: Any) -> tuple[Any, ...]:
    """What comes between v and the keywords."""
    if static.operator == "simple":
        return ()
    return (bias,) if static.window is None else (bias, static.window)


def _heads(bias: Any, operator: str) -> int:
    if operator == "simple":
        return 1
    if isinstance(bias, Factorized):
        return max(x.shape[0] if x.ndim == 3 else 1 for x in bias)
    if isinstance(bias, SparseFilter):
        return int(bias.values.shape[0])
    w = bias.w if isinstance(bias, Banded) else bias
    if operator == "conv":
        return int(w.shape[0])
    return int(w.shape[-3]) if w.ndim > 2 else 1


def _run_forward(static: _Static, save: bool, q: Any, k: Any, v: Any, bias: Any, masks: Any) -> Any:
    q, k, v, bias, masks = _numpy((q, k, v, bias, masks))
    call = getattr(_forward, static.operator)
    return call(q, k, v, *_between(static, bias), **static.keywords(), **masks, return_lse=save, return_average=save)


def _run_backward(static: _Static, q: Any, k: Any, v: Any, bias: Any, masks: Any, saved: Any, dy: Any) -> Any:
    q, k, v, bias, masks, saved, dy = _numpy((q, k, v, bias, masks, saved, dy))
    call = getattr(_backward, static.operator + "_backward")
    gradients = call(q, k, v, *_between(static, bias), dy, **static.keywords(), **masks, **saved)
    return gradients if static.operator == "simple" else (*gradients[:3], _floats(gradients[3]))


def _floats(bias: Any) -> Any:
    """What of a bias has a gradient: all but the taps of a sparse filter."""
    return bias.values if isinstance(bias, SparseFilter) else bias


def _struct(shape: Any, dtype: Any) -> Any:
    make: Any = jax.ShapeDtypeStruct  # which JAX gives no types
    return make(shape, dtype)


def _like(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda x: _struct(jnp.shape(x), jnp.result_type(x)), tree)


def _evaluate(static: _Static, save: bool, q: Any, k: Any, v: Any, bias: Any, masks: Any) -> Any:
    y = _struct(q.shape, v.dtype)
    results: Any = y
    if save:
        sums = jnp.float64 if v.dtype == jnp.float64 else jnp.float32
        results = (y, _struct((*q.shape[:-1], k.shape[-1]), sums), _struct(q.shape, sums))
    return jax.pure_callback(functools.partial(_run_forward, static, save), results, q, k, v, bias, masks,
                             vmap_method="sequential")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(static: _Static, q: Any, k: Any, v: Any, bias: Any, masks: Any) -> Any:
    return _evaluate(static, False, q, k, v, bias, masks)


def _call_forward(static: _Static, q: Any, k: Any, v: Any, bias: Any, masks: Any) -> Any:
    # A lse is one for each key channel, so that a key channel of several heads has none.
    if k.shape[-1] % max(_heads(bias, static.operator), 1) != 0:
        return _evaluate(static, False, q, k, v, bias, masks), (q, k, v, bias, masks, {})
    y, lse, average = _evaluate(static, True, q, k, v, bias, masks)
    return y, (q, k, v, bias, masks, {"lse": lse, "average": average})


def _call_backward(static: _Static, kept: Any, dy: Any) -> Any:
    q, k, v, bias, masks, saved = kept
    wanted = (q, k, v) if static.operator == "simple" else (q, k, v, _floats(bias))
    gradients = jax.pure_callback(functools.partial(_run_backward, static), _like(wanted), q, k, v, bias, masks, saved, dy,
                                  vmap_method="sequential")
    dbias = None
    if static.operator != "simple":
        dbias = SparseFilter(None, gradients[3]) if isinstance(bias, SparseFilter) else gradients[3]
    return (*gradients[:3], dbias, None)


_call.defvjp(_call_forward, _call_backward)


def _masks(**masks: Any) -> dict[str, Any]:
    return {name: x for name, x in masks.items() if x is not None}


def _array_or_zeros(static: _Static, q: Any, v: Any, rows: int | None) -> Any:
    """A gate that does not read q needs its shape alone."""
    if q is not None:
        return q
    if static.gate != "none":
        raise ValueError(f"aft::{static.operator}: argument 'q': expected an array, which only the gate 'none' does "
                         "without, got None")
    if v.ndim > 3:
        return jnp.zeros_like(v)
    return jnp.zeros((*v.shape[:-2], v.shape[-2] if rows is None else rows, v.shape[-1]), v.dtype)


def _rows(bias: Any) -> int:
    return int((bias.u if isinstance(bias, Factorized) else bias.w if isinstance(bias, Banded) else bias).shape[-2])


def full(q: Any, k: Any, v: Any, bias: Any, *, causal: bool = False, gate: str = "sigmoid", arithmetic: str = "automatic",
         mask: Any = None, key_lengths: Any = None, query_lengths: Any = None, first_query: int = 0, threads: int = 0) -> Any:
    """aft.full of JAX arrays (AFT Eq. 2): (B, Tq, d), differentiable in q, k, v and bias."""
    static = _Static("full", None, causal, gate, "zero_bias", arithmetic, first_query, threads)
    return _call(static, _array_or_zeros(static, q, v, _rows(bias)), k, v, bias,
                 _masks(mask=mask, key_lengths=key_lengths, query_lengths=query_lengths))


def local(q: Any, k: Any, v: Any, bias: Any, window: Window, *, causal: bool = False, gate: str = "sigmoid",
          outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
          query_lengths: Any = None, first_query: int = 0, threads: int = 0) -> Any:
    """aft.local of JAX arrays (AFT Eq. 4)."""
    static = _Static("local", window, causal, gate, outside, arithmetic, first_query, threads)
    return _call(static, _array_or_zeros(static, q, v, _rows(bias)), k, v, bias,
                 _masks(mask=mask, key_lengths=key_lengths, query_lengths=query_lengths))


def simple(q: Any, k: Any, v: Any, *, causal: bool = False, gate: str = "sigmoid", arithmetic: str = "automatic",
           mask: Any = None, key_lengths: Any = None, query_lengths: Any = None, first_query: int = 0, threads: int = 0) -> Any:
    """aft.simple of JAX arrays (AFT Eq. 5)."""
    static = _Static("simple", None, causal, gate, "zero_bias", arithmetic, first_query, threads)
    return _call(static, _array_or_zeros(static, q, v, None), k, v, (),
                 _masks(mask=mask, key_lengths=key_lengths, query_lengths=query_lengths))


def conv(q: Any, k: Any, v: Any, filter: Any, *, causal: bool = False, gate: str = "sigmoid",  # pylint: disable=redefined-builtin
         outside: str = "zero_bias", arithmetic: str = "automatic", mask: Any = None, key_lengths: Any = None,
         query_lengths: Any = None, first_query: int = 0, threads: int = 0) -> Any:
    """aft.conv of JAX arrays (AFT Eq. 6), on sequences and grids; filter may be an aft.SparseFilter."""
    static = _Static("conv", None, causal, gate, outside, arithmetic, first_query, threads)
    return _call(static, _array_or_zeros(static, q, v, None), k, v, filter,
                 _masks(mask=mask, key_lengths=key_lengths, query_lengths=query_lengths))
