# SPDX-License-Identifier: Apache-2.0
"""Weighted averages of values by standard operators, from a bias of pairs.

Two ways: one exponential for each pair and channel, less the largest of its row, which is right for any finite
numbers and takes memory for every pair of every channel; and the product of e^w with [e^k v, e^k], which takes memory
for every pair of every head. The product loses terms to underflow where k and w are large against one another, so a
graph that has it looks at its sums, and takes the first way where they are small.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .pairs import both

Tensor = torch.Tensor
# Factors of a term underflow below 2^-126: beside sums from here on that is less than their rounding for fewer than
# 2^70 keys. And no exponent of a term that counts is below -21, which bounds what its rounding does to the term.
PROVEN = 2.0 ** -30


def spread(x: Tensor, channels: Any) -> Tensor:
    """(_, n, _, _) to (_, channels, _, _): channel c is that of n which it belongs to. One for all stays one."""
    n = x.shape[1]
    if n == channels or n == 1:
        return x
    return x.index_select(1, torch.arange(channels, device=x.device) // (channels // n))


def finite_or_0(largest: Tensor) -> Tensor:
    """What is subtracted: 0 for a row that sees nothing, where -inf less itself would be NaN."""
    return torch.where(largest == -torch.inf, 0, largest)


def quotient(total: Tensor) -> Tensor:
    """What sums are divided by: the average of a row that sees nothing is 0."""
    return torch.where(total == 0, 1, total)


def by_pairs(k: Tensor, v: Tensor, w: Optional[Tensor], visible: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """Averages (B, n, Tq, m) and lse (B, n, Tq, 1), of k (B, n, 1, Tk), v (B, n, Tk, m), w (1 or B, n or 1, Tq, Tk).

    Tq is 1 where all rows have the same weights.
    """
    scores = k if w is None else k + w
    if visible is not None:
        scores = torch.where(visible, scores, -torch.inf)
    largest = finite_or_0(scores.amax(-1, keepdim=True))
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    # Divided before the sum, values up to the largest number have an average.
    return (weights / quotient(total)) @ v, torch.log(total) + largest


def by_product(k: Tensor, v: Tensor, w: Optional[Tensor], visible: Optional[Tensor],
               heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same with pairs of heads alone, and whether the sums prove it; w and visible have 1 or `heads` heads."""
    batch, n, _, keys = k.shape
    largest_k = finite_or_0(k.amax(-1, keepdim=True))
    exp_k = torch.exp(k - largest_k).mT                                                 # (B, n, Tk, 1)
    operand = torch.cat([exp_k * v, exp_k], -1)
    width = operand.shape[-1]
    # Channels of a head side by side: (B, heads, Tk, n / heads * (m + 1)).
    operand = operand.reshape(batch, heads, n // heads, keys, width).transpose(2, 3).flatten(3)
    if w is None:
        assert visible is not None
        largest_w, exp_w = None, visible.to(v.dtype)
    else:
        scores = w if visible is None else torch.where(visible, w, -torch.inf)
        largest_w = finite_or_0(scores.amax(-1, keepdim=True))
        exp_w = torch.exp(scores - largest_w)
    product = exp_w @ operand
    sums = product.reshape(*product.shape[:-1], n // heads, width).transpose(2, 3).flatten(1, 2)
    total = sums[..., -1:]
    shift = largest_k if largest_w is None else largest_k + spread(largest_w, n)
    seen = spread((exp_w > 0).any(-1, keepdim=True), n)
    # NaN is not proven either: a key that some rows do not see must not reach them.
    proven = ((total >= PROVEN) | ~seen).all()
    return sums[..., :-1] / quotient(total), torch.log(total) + shift, proven


def averages(k: Tensor, v: Tensor, w: Optional[Tensor], column: Optional[Tensor],
             pair: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """The average of v's rows with weights e^(k + w), and log sum_s e^(k + w).

    Args:
        k: (B, Tk, hk), v: (B, Tk, d), of float32 or float64.
        w: (1 or B, H, Tq, Tk) of the same dtype, or None for 0.
        column: keys that a row may see, (1 or B, 1, 1, Tk) of bool; what others hold is not read. None for all.
        pair: pairs that are visible besides, (1 or B, 1, Tq, Tk).

    Returns (B, Tq, d) and (B, Tq, n), Tq 1 where all rows are alike. n is hk where H divides it.
    """
    hk, d, heads = k.shape[-1], v.shape[-1], 1 if w is None else w.shape[1]
    # Channels whose weights differ.
    n = hk if hk % heads == 0 else heads if heads % hk == 0 else d
    k, v = spread(k.mT[:, :, None], n), v.reshape(*v.shape[:-1], n, d // n).transpose(1, 2)
    if column is not None:
        k, v = torch.where(column, k, -torch.inf), torch.where(column.mT, v, 0)
    # A bias of -inf hides as a mask does. What lies in hidden keys must not meet it: NaN and -inf are NaN.
    visible = pair if w is None else both(pair, w != -torch.inf)
    wide_w = None if w is None else spread(w, n)
    wide_visible = None if visible is None else spread(visible, n)
    if n == heads or (w is None and visible is None):
        average, lse = by_pairs(k, v, wide_w, wide_visible)
    else:
        visible = both(visible, column)
        *product, proven = by_product(k, v, w, visible, heads)
        average, lse = choose(proven, product, k, v, wide_w, wide_visible)
    return average.transpose(1, 2).flatten(2), lse.squeeze(-1).transpose(1, 2)


def _laid_out(*results: Tensor) -> tuple[Tensor, ...]:
    """As PyTorch wants what branches return: not their inputs, and with the same strides from both."""
    return tuple(x.clone(memory_format=torch.contiguous_format) for x in results)


def choose(proven: Tensor, product: Any, k: Tensor, v: Tensor, w: Optional[Tensor],
           visible: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """The product where it is proven, and the other way, which is computed then alone, where it is not."""
    given = [x for x in (w, visible) if x is not None]

    def fast(average: Tensor, lse: Tensor, *_: Tensor) -> Any:
        return _laid_out(average, lse)

    def exact(_average: Tensor, _lse: Tensor, keys: Tensor, values: Tensor, *rest: Tensor) -> Any:
        bias = rest[0] if w is not None else None
        return _laid_out(*by_pairs(keys, values, bias, rest[-1] if visible is not None else None))

    result: Any = torch.ops.higher_order.cond(proven, fast, exact, (*product, k, v, *given))
    return result[0], result[1]
