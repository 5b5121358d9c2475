# SPDX-License-Identifier: Apache-2.0
"""Pictures of training runs: what the programs' scripts share."""

import json
import pathlib
import sys


def results_and_folder(usage):
    """What a script's two arguments name, results and a folder that is made; other ones end it with its usage."""
    if len(sys.argv) != 3:
        print(usage, file=sys.stderr)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    return json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), folder


def smoothed(values, weight):
    """A running mean that forgets: single batches differ by more than the mixers do."""
    result, mean, total = [], 0.0, 0.0
    for value in values:
        mean = (1 - weight) * mean + weight * value
        total = (1 - weight) * total + weight
        result.append(mean / total)
    return result


def draw_losses(axes, data, weight, label):
    """Training losses over steps, and over seconds, on two axes that share theirs; label(run) is what the legend says."""
    for run in data["results"]:
        losses = smoothed(run["train_bits"], weight)
        axes[0].plot(range(1, len(losses) + 1), losses, label=label(run))
        axes[1].plot(run["seconds"], losses)
    for axis, title in zip(axes, ("steps", f"seconds on {data['threads']} threads")):
        axis.set_xlabel(title)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
