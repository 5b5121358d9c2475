#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a loop that alternates torch.matmul and aft takes longer than both alone.

alternation.py [<file.json>] [--threads n]

PyTorch and aft may each have a pool of threads. Threads of one that spin while the other computes take its processors,
and the loop then takes up to as often as long as there are threads to a processor. Each turn measures a loop of
products, one of aft.torch.simple, and one that alternates them, one after the other; the ratio of a turn is alternating
over the sum of both alone, and what is printed is the median of the turns' ratios. About 1 is what it should be: turns
next to each other meet the same other work on a machine, so that it cancels, and the median leaves out the rest.
"""

import argparse
import contextlib
import pathlib
import statistics
import time

from record import measured

TURNS, CALLS = 21, 40


def seconds(*calls):
    """Of CALLS rounds, each call once a round."""
    start = time.perf_counter()
    for _ in range(CALLS):
        for call in calls:
            call()
    return time.perf_counter() - start


def ratios(product, mix):
    """One for each turn; the order changes, for neither to be always what comes after the other."""
    seconds(product, mix)
    found = []
    for turn in range(TURNS):
        loops = [(product,), (mix,), (product, mix)]
        took = {loop: seconds(*loop) for loop in (loops if turn % 2 else loops[::-1])}
        found.append(took[loops[2]] / (took[loops[0]] + took[loops[1]]))
    return found


def table(record):
    """Lines of the page."""
    low, high = record["quartiles"]
    yield (f"{record['threads']} threads on {record['cores']} cores of {record['processor']}, PyTorch {record['torch']}, commit "
           f"`{record['commit'][:12]}`, {record['date']}, load {record['load'][0]} before:")
    yield ""
    yield "| alternating over both alone | half of the turns | turns |"
    yield "|---|---|---|"
    yield f"| {record['ratio']} | {low} to {high} | {record['turns']} |"


def main():
    import torch

    import aft.torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    parser.add_argument("--threads", type=int, help="PyTorch's choice by default")
    line = parser.parse_args()
    if line.threads is not None:
        torch.set_num_threads(line.threads)
    # Calls of some hundred microseconds: long enough for all threads, and short enough for what lies between to count.
    a = torch.randn(256, 256)
    x = torch.randn(1, 512, 256)
    with measured(line.file) if line.file else contextlib.nullcontext({}) as record:
        found = ratios(lambda: a @ a, lambda: aft.torch.simple(x, x, x, causal=True))
        quarters = statistics.quantiles(found, n=4)
        record.update(ratio=round(quarters[1], 3), quartiles=[round(q, 3) for q in quarters[::2]], turns=TURNS)
    print(f"alternating over both alone: {quarters[1]:.2f} (half of the turns {quarters[0]:.2f} to {quarters[2]:.2f}), "
          f"{torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
