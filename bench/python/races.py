#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each operator of aft.torch against AFT in PyTorch's own operations, and against PyTorch's attention, in one process.

races.py <file.json> [--length T] [--channels d] [--threads n]     measures, on float tensors (1, T, d)
races.py --table <file.json>                                       prints the table that page.py puts into a page

AFT in PyTorch's own operations ("eager") is the sum over keys of v times exp(k + w - max), whose maxima are taken over
keys for each query and channel: nothing less is right for every input, and it makes T x T x d numbers. Attention has
heads of 64 channels and is causal, as all calls here are.

torch.utils.benchmark measures; contestants take turns, so that what else runs on a machine meets all of them. Of ours
the time is kept, the median of the turns, and of the others how many times as long they took in the same turn, the
median again: times of a machine with other work are no one's, ratios of neighbours in time still are. Before, results
of operator and eager are compared.
"""

import argparse
import json
import pathlib
import statistics

TURNS, SECONDS, WINDOW, HEADS, HEAD_CHANNELS = 7, 0.1, 32, 8, 64


def eager(torch, q, k, v, w):
    """AFT Eq. 2: q, k, v (B, T, d); w (T, T), or (T, T, d) where channels differ; causal."""
    shown = k.unsqueeze(1) + (w if w.dim() == 3 else w.unsqueeze(-1))
    hidden = torch.ones(w.shape[:2], dtype=torch.bool).triu(1).unsqueeze(-1)
    shown = shown.masked_fill(hidden, -torch.inf)
    weights = torch.exp(shown - shown.amax(2, keepdim=True))
    # einsum makes a batch of products of a matrix and a vector of this, which took eight times as long.
    return torch.sigmoid(q) * (weights * v.unsqueeze(1)).sum(2) / weights.sum(2)


def contests(torch, aft, length, channels):
    """operator -> (ours, eager): functions of q, k, v."""
    bias = torch.randn(length, length)
    t, s = torch.arange(length).unsqueeze(1), torch.arange(length).unsqueeze(0)
    near = torch.where((t - s >= 0) & (t - s < WINDOW), bias, 0.0)
    filters = torch.randn(HEADS, WINDOW)
    # Entry of head and distance; beyond the taps the bias is 0.
    j = s - t + WINDOW - 1
    spread = torch.where((j >= 0) & (j < WINDOW), filters[:, j.clamp(0, WINDOW - 1)], 0.0)
    spread = spread.repeat_interleave(channels // HEADS, 0).permute(1, 2, 0).contiguous()
    ops, window, none = aft.torch, aft.Window(before=WINDOW - 1, after=0), torch.zeros(length, length)
    return {
        "full": (lambda q, k, v: ops.full(q, k, v, bias, causal=True),
                 lambda q, k, v: eager(torch, q, k, v, bias)),
        "local": (lambda q, k, v: ops.local(q, k, v, bias, window, causal=True),
                  lambda q, k, v: eager(torch, q, k, v, near)),
        "simple": (lambda q, k, v: ops.simple(q, k, v, causal=True),
                   lambda q, k, v: eager(torch, q, k, v, none)),
        "conv": (lambda q, k, v: ops.conv(q, k, v, filters, causal=True),
                 lambda q, k, v: eager(torch, q, k, v, spread)),
    }


def both_ways(call, leaves, dy):
    """Forward and backward, with gradients of q, k and v."""
    def step():
        for leaf in leaves:
            leaf.grad = None
        call(*leaves).backward(dy)
    return step


def raced(contestants, measure):
    """{"aft": milliseconds, every other: times of ours}, medians of the turns. measure(call): seconds of a call."""
    turns = [{name: measure(call) for name, call in contestants.items()} for _ in range(TURNS)]
    found = {name: statistics.median(turn[name] / turn["aft"] for turn in turns) for name in contestants}
    found["aft"] = 1e3 * statistics.median(turn["aft"] for turn in turns)
    return {name: float(f"{number:.3g}") for name, number in found.items()}


def races(length, channels):
    """{"full": {"forward": what raced() gives of "aft", "eager" and "attention", "training": the same}, ...}"""
    import torch
    from torch.utils.benchmark import Timer

    import aft.torch

    torch.manual_seed(0)
    q, k, v, dy = torch.randn(4, 1, length, channels)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]

    def attention(*qkv):
        heads = [x.view(1, length, channels // HEAD_CHANNELS, HEAD_CHANNELS).transpose(1, 2) for x in qkv]
        y = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return y.transpose(1, 2).reshape(1, length, channels)

    def measure(call):
        timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=SECONDS).median

    found = {}
    for name, (ours, theirs) in contests(torch, aft, length, channels).items():
        torch.testing.assert_close(ours(q, k, v), theirs(q, k, v), rtol=1e-4, atol=1e-4)
        calls = {"aft": ours, "eager": theirs, "attention": attention}
        found[name] = {
            "forward": raced({who: lambda call=call: call(q, k, v) for who, call in calls.items()}, measure),
            "training": raced({who: both_ways(call, leaves, dy) for who, call in calls.items()}, measure)}
        print(name, found[name], flush=True)
    return found


def table(record):
    """Lines of the page: how long a call of ours takes, and how many times as long the others do."""
    threads = "one thread" if record["threads"] == 1 else f"{record['threads']} threads"
    yield (f"Causal calls on float tensors (1, {record['length']}, {record['channels']}), {threads} of "
           f"{record['processor']}, PyTorch {record['torch']}, commit `{record['commit'][:12]}`, {record['date']}, "
           f"load {record['load'][0]:g} before and {record['load'][1]:g} after:")
    yield ""
    yield "| operator | forward, ms | eager | attention | forward and backward, ms | eager | attention |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in record["races"].items():
        cells = [f"{found[way][who]:g}" + ("" if who == "aft" else " times") for way in ("forward", "training")
                 for who in ("aft", "eager", "attention")]
        yield f"| `{name}` | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--table", action="store_true", help="print the table of a file that was measured before")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--channels", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--threads", type=int, help="PyTorch's choice by default")
    line = parser.parse_args()
    if line.table:
        print("\n".join(table(json.loads(line.file.read_text(encoding="utf-8")))))
        return
    if line.length < 1 or line.channels < 1 or line.channels % HEAD_CHANNELS:
        parser.error(f"--length and --channels: expected above 0 and a multiple of {HEAD_CHANNELS}, "
                     f"got {line.length} and {line.channels}")
    from record import measured

    if line.threads is not None:
        import torch
        torch.set_num_threads(line.threads)
    with measured(line.file) as record:
        record.update(length=line.length, channels=line.channels, races=races(line.length, line.channels))


if __name__ == "__main__":
    main()
