#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of aft.torch costs beside its work: microseconds of calls on one position of 8 channels, with one thread.

torch_overhead.py [<file.json>]: needs the package and PyTorch. Beside them stand an addition and PyTorch's attention on
the same tensors, which say how fast the machine is at that moment. The shortest of several repetitions: what else runs
on a machine only makes them longer.
"""

import json
import platform
import sys
import timeit

import numpy
import torch

import aft
import aft.torch

REPETITIONS, CALLS = 7, 2000


def microseconds(call):
    call()
    return round(min(timeit.repeat(call, number=CALLS, repeat=REPETITIONS)) / CALLS * 1e6, 2)


def calls():
    """Name and call, from the library's own to a step of training."""
    array = numpy.ones((1, 1, 8), numpy.float32)
    x, w = torch.ones(1, 1, 8), torch.ones(1, 1)
    leaf, dy = torch.ones(1, 1, 8, requires_grad=True), torch.ones(1, 1, 8)
    op = torch.ops.aft.simple.default
    layer = aft.torch.nn.AFTSimple(8, causal=True)
    stream = layer.stream()
    attention = torch.nn.functional.scaled_dot_product_attention
    return {
        "aft.simple on NumPy arrays": lambda: aft.simple(array, array, array, threads=1),
        "torch.ops.aft.simple": lambda: op(x, x, x),
        "aft.torch.simple": lambda: aft.torch.simple(x, x, x),
        "aft.torch.full": lambda: aft.torch.full(x, x, x, w),
        "aft.torch.simple, a gradient to come": lambda: aft.torch.simple(leaf, leaf, leaf),
        "aft.torch.simple and its gradient": lambda: aft.torch.simple(leaf, leaf, leaf).backward(dy),
        "AFTSimple.step, projections included": lambda: layer.step(x, stream),
        "addition": lambda: x + x,
        "attention": lambda: attention(x, x, x),
        "attention and its gradient": lambda: attention(leaf, leaf, leaf).backward(dy),
    }


def main():
    torch.set_num_threads(1)
    times = {name: microseconds(call) for name, call in calls().items()}
    width = max(map(len, times))
    for name, time in times.items():
        print(f"{name:{width}}  {time:8.2f} us")
    if len(sys.argv) > 1:
        found = {"torch": torch.__version__, "python": platform.python_version(), "aft": aft.__version__,
                 "isa": aft.isa(), "microseconds": times}
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
