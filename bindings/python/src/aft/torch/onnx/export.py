# SPDX-License-Identifier: Apache-2.0
"""From a module to a file."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .decompositions import decompose


def export(module: torch.nn.Module, args: tuple[Any, ...], path: Any = None, *, kwargs: Optional[dict[str, Any]] = None,
           dynamic_shapes: Any = None, **options: Any) -> Any:
    """Writes a module as an ONNX model of standard operators, which needs nothing of aft where it runs.

    Args:
        module: its forward calls aft.torch, layers of aft.torch.nn among them. It is exported in its present mode.
        args, kwargs: tensors of forward, of shapes and dtypes as the model will get.
        path: the file; None for none.
        dynamic_shapes: extents that may vary, as torch.export.export takes them, such as
            ({0: torch.export.Dim("batch")},). Others are those of args.
        options: more for torch.onnx.export, such as input_names and opset_version.

    Returns the torch.onnx.ONNXProgram. Needs the packages onnx and onnxscript. What the model computes, its cost, and
    what has no decomposition: decompose().

    Raises:
        ValueError: an op without a decomposition, or arguments that do not fit. No file is written.
        torch.onnx.OnnxExporterError: what torch.onnx.export cannot do with the rest of the module.
    """
    # A gradient to come would have the ops return what their backward calls read.
    with torch.no_grad():
        program = torch.export.export(module, tuple(args), kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        return torch.onnx.export(decompose(program), f=path, dynamo=True, **options)
