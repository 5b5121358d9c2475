# SPDX-License-Identifier: Apache-2.0
"""Layers: an operator between the projections of queries, keys, values and results (AFT section 3)."""

from .conv import AFTConv1d, AFTConv2d
from .full import AFTFull
from .local import AFTLocal
from .simple import AFTSimple

__all__ = ["AFTConv1d", "AFTConv2d", "AFTFull", "AFTLocal", "AFTSimple"]
