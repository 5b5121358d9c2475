# SPDX-License-Identifier: Apache-2.0
"""Parameters sorted for an optimizer."""

from __future__ import annotations

from typing import Any

import torch


def parameter_groups(model: torch.nn.Module, lr: float, bias_factor: float = 10.0) -> list[dict[str, Any]]:
    """Groups for a torch.optim optimizer, in which position biases learn bias_factor times as fast as the rest.

    A bias entry gets gradient from one pair of positions, a weight of a projection from all of them. At a common rate
    the biases hardly move while the projections converge. 10 is a good start for filters, 30 for windows.

    Args:
        model: any module; the layers of aft.torch.nn and aft.torch.compat in it are found. A layer of your own takes
            part with an attribute `position_parameters`, the names of its parameters that are position biases.
        lr: the learning rate of all other parameters.
        bias_factor: what lr is multiplied by for position biases.

    Returns two groups, {"params": [...], "lr": ...}: the other parameters, then the position biases, each parameter
    once and in the model's order; frozen parameters are left out. A group may be empty.

    Raises ValueError where lr or bias_factor is negative.
    """
    if lr < 0 or bias_factor < 0:
        raise ValueError(f"lr and bias_factor: expected 0 or more, got {lr} and {bias_factor}")
    biases = {id(getattr(module, name)) for module in model.modules()
              for name in getattr(module, "position_parameters", ()) if getattr(module, name) is not None}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [{"params": [p for p in trained if id(p) not in biases], "lr": lr},
            {"params": [p for p in trained if id(p) in biases], "lr": lr * bias_factor}]
