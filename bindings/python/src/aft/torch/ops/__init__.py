# SPDX-License-Identifier: Apache-2.0
"""torch.ops.aft: importing this package registers the ops."""

from . import schema as schema  # isort: skip
from . import autocast, batching, fakes, gradients, kernels

__all__ = ["autocast", "batching", "fakes", "gradients", "kernels", "schema"]
