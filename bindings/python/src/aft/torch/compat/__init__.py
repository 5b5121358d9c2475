# SPDX-License-Identifier: Apache-2.0
"""Modules that take the place of others: their constructors, their state_dict, and their results where those are right.

A model that was trained with one of them loads here. Differences are said where they are.
"""

from . import aft_pytorch, labml

__all__ = ["aft_pytorch", "labml"]
