# SPDX-License-Identifier: Apache-2.0
"""What a call says of every pair of positions: its bias, and whether the key is visible.

All is computed from indices by standard operators, so that lengths may be symbols.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ..ops.schema import CONV, LOCAL, SIMPLE, Operator
from .checks import expect

Tensor = torch.Tensor


def both(a: Optional[Tensor], b: Optional[Tensor]) -> Optional[Tensor]:
    """a and b, of which None is true everywhere."""
    return b if a is None else a if b is None else a & b


def distances(rows: Any, keys: Any, first_query: Any, device: torch.device) -> Tensor:
    """s - position of t, (rows, keys) of int64."""
    steps: Tensor = torch.arange(keys, device=device) - torch.arange(rows, device=device)[:, None] - first_query
    return steps


def take(table: Tensor, entry: Tensor, inside: Tensor) -> Tensor:
    """table[..., entry], 0 where not inside; entries there may lie beyond the table."""
    return torch.where(inside, table[..., torch.where(inside, entry, 0)], 0)


def banded_pairs(w: Tensor, distance: Tensor, before: Any, after: Any) -> Tensor:
    """A banded bias (H, Tq, width) as pairs (H, Tq, Tk): entry j of a row belongs to the key at distance j - before."""
    inside = (distance >= -before) & (distance <= after)
    entry = torch.where(inside, distance + before, 0)
    found = w.gather(-1, entry.expand(w.shape[0], *entry.shape))
    return torch.where(inside, found, 0)


def conv_pairs(taps: Tensor, rows: Sequence[Any], keys: Sequence[Any], causal: bool,
               first_query: Any) -> tuple[Tensor, Tensor]:
    """A filter (H, ...) as pairs (H, Tq, Tk) of a grid's points, in row-major order, and those inside (AFT Eq. 6)."""
    entry, inside = taps.new_zeros((1, 1), dtype=torch.int64), taps.new_ones((1, 1), dtype=torch.bool)
    for extent, m, n in zip(taps.shape[1:], rows, keys):
        left = extent - 1 if causal else (extent - 1) // 2
        tap = distances(m, n, first_query, taps.device) + left
        # Points of the axes so far are rows and columns, among which this axis comes last: a Kronecker sum.
        a, b = entry.shape
        entry = (entry[:, None, :, None] * extent + tap[:, None, :]).reshape(a * m, b * n)
        inside = (inside[:, None, :, None] & ((tap >= 0) & (tap < extent))[:, None, :]).reshape(a * m, b * n)
    return take(taps.flatten(1), entry, inside), inside


def bias_pairs(operator: Operator, bias: Sequence[Any], rows: Sequence[Any], keys: Sequence[Any], causal: bool,
               first_query: Any) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """w of (1 or B, H, Tq, Tk), or None where it is 0; and which pairs lie inside the window, (Tq, Tk), or None."""
    if operator is SIMPLE:
        return None, None
    if operator is CONV:
        expect(operator, "filter", "the axes of taps", bias[0].dim() - 1, len(rows))
        w, inside = conv_pairs(bias[0], rows, keys, causal, first_query)
        return w[None], inside
    kind, w, u, x = bias[:4]
    if operator is LOCAL:
        before, after = bias[4:6]
        distance = distances(rows[0], keys[0], first_query, (u if w is None else w).device)
        inside = (distance >= -before) & (distance <= after)
    if kind == "factorized":
        w = u @ x.mT
    elif kind == "banded":
        expect(operator, "w", "extent -1 (width)", w.shape[-1], max(before + after + 1, 0))
        expect(operator, "w", "extent -2 (Tq)", w.shape[-2], rows[0])
        w = w[None] if w.dim() == 2 else w
        # A window without keys has no entries that an index could name.
        w = banded_pairs(w, distance, before, after) if w.shape[-1] > 0 else w.new_zeros((1, rows[0], keys[0]))
    expect(operator, "w" if u is None else "u", "extent -2 (Tq)", w.shape[-2], rows[0])
    # The library's second factor is v.
    name, what = ("w", "extent -1 (Tk)") if u is None else ("v", "extent -2 (Tk)")
    expect(operator, name, what, w.shape[-1], keys[0])
    w = w.reshape((1,) * (4 - w.dim()) + tuple(w.shape))
    return (w, None) if operator is not LOCAL else (torch.where(inside, w, 0), inside)


def visible_pairs(mask: Optional[Tensor], key_lengths: Optional[Tensor], causal: bool, first_query: Any, rows: Any,
                  keys: Any, device: torch.device) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """Keys that some row sees, (1 or B, 1, 1, Tk), and pairs that are visible besides, (1 or B, 1, Tq, Tk).

    None is all of them. The two are apart since a key that no row sees may hold anything, and since without a
    condition on pairs all rows have the same weights.
    """
    column: Optional[Tensor] = None
    pair: Optional[Tensor] = None
    if key_lengths is not None:
        column = (torch.arange(keys, device=device) < key_lengths[:, None])[:, None, None]
    if mask is not None:
        seen = (mask != 0).reshape((1,) * (3 - mask.dim()) + tuple(mask.shape))[:, None]
        column, pair = (both(column, seen), pair) if seen.shape[2] == 1 else (column, seen)
    if causal:
        pair = both(pair, distances(rows, keys, first_query, device)[None, None] <= 0)
    return column, pair
