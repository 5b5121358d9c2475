# SPDX-License-Identifier: Apache-2.0
"""Export to ONNX: the operators as graphs of standard operators, which every runtime has."""

from .decompositions import decompose
from .export import export

__all__ = ["decompose", "export"]
