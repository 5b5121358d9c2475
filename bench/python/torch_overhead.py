#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of aft.torch costs beside its work: microseconds of calls on one position of 8 channels, with one thread.

torch_overhead.py [<file.json>]          measures: needs the package and PyTorch
torch_overhead.py --table <file.json>    prints the table that page.py puts into a page

Beside them stand an addition and PyTorch's attention on the same tensors, which say how fast the machine is at that
moment. The calls take turns, and the shortest of all turns counts: what else runs on a machine only makes them longer.
"""

import json
import pathlib
import sys
import timeit

from record import measured, two_columns

# Turns so short that many pass between two interruptions.
REPETITIONS, CALLS = 200, 100


def shortest(calls):
    """Microseconds of each call."""
    turns = []
    for _ in range(REPETITIONS):
        turns.append({name: timeit.timeit(call, number=CALLS) / CALLS * 1e6 for name, call in calls.items()})
    return {name: round(min(turn[name] for turn in turns), 2) for name in calls}


def calls():
    """Name and call, from the library's own to a step of training."""
    import numpy
    import torch

    import aft
    import aft.torch

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


def table(record):
    """Lines of the page."""
    head = (f"Microseconds of a call on one position of 8 channels, one thread of {record['processor']}, PyTorch "
            f"{record['torch']}, commit `{record['commit'][:12]}`, {record['date']}:")
    return two_columns(head, "call", "us", record["microseconds"])


def main():
    if sys.argv[1:2] == ["--table"] and len(sys.argv) == 3:
        print("\n".join(table(json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")))))
        return
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    import torch

    torch.set_num_threads(1)
    with measured(pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else "/dev/null")) as record:
        times = record["microseconds"] = shortest(calls())
    print("\n".join(f"{name:{max(map(len, times))}}  {took:8.2f} us" for name, took in times.items()))


if __name__ == "__main__":
    main()
