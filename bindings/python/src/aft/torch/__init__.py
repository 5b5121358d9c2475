# SPDX-License-Identifier: Apache-2.0
"""The operators for PyTorch: functions with gradients, layers, and the same ops as torch.ops.aft."""

from . import ops as _ops  # noqa: F401
from . import compat, nn, onnx
from .filters import reparameterize
from .functions import conv, full, local, simple
from .groups import parameter_groups

__all__ = ["compat", "conv", "full", "local", "nn", "onnx", "parameter_groups", "reparameterize", "simple"]
