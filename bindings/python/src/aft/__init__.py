# SPDX-License-Identifier: Apache-2.0
"""Attention Free Transformer operators on the CPU, for NumPy and everything that speaks DLPack.

full, local, simple and conv, each with a gradient, replace dot-product attention by weighted averages of the values
with a learned position bias (Zhai et al., arXiv 2105.14103). help(aft.full) tells all arguments. aft.torch has them for
PyTorch.
"""

import os as _os

from . import _core
from ._arguments import Banded, Factorized, SparseFilter, Window, inclusive, strict
from ._backward import conv_backward, full_backward, local_backward, simple_backward
from ._core import DeviceError
from ._core import version as __version__
from ._forward import conv, full, local, simple
from ._stream import Stream
from ._sparsity import (filter_entropy, filter_entropy_backward, gumbel_filter, gumbel_filter_backward,
                        gumbel_filter_hard)
from ._tools import attention_map, build_info, isa, reparameterize, reparameterize_backward

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.after_fork)

__all__ = [
    "Banded", "DeviceError", "Factorized", "SparseFilter", "Stream", "Window", "__version__", "attention_map",
    "build_info", "conv", "conv_backward", "filter_entropy", "filter_entropy_backward", "full", "full_backward",
    "gumbel_filter", "gumbel_filter_backward", "gumbel_filter_hard", "inclusive", "isa", "local", "local_backward",
    "reparameterize", "reparameterize_backward", "simple", "simple_backward", "strict",
]
