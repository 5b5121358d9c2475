#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All mixers beside each other (AFT section 5.3), with three seeds each: how far they differ, and seeds do.

seeds.py PROGRAM RESULTS.json [OPTION...]   trains what RESULTS.json lacks; the options go to every run
seeds.py --table RESULTS.json               prints the table as Markdown
seeds.py --check RESULTS.json PAGE.md       fails if the page holds another

A run that is finished is kept: what was interrupted goes on with the next call.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import NAMES, command, machine_of, run_missing  # noqa: E402  (where they are comes first)

SEEDS = (1, 2, 3)
# AFT-conv's filters begin flat, as the papers'.
RUNS = {f"{mixer} {seed}": ("--mixer", mixer, "--epochs", "1", "--seed", str(seed), *(("--filter-gain", "0") if mixer == "conv2d" else ()))
        for seed in SEEDS for mixer in ("conv2d", "attention", "full", "local", "simple")}
KEPT = ("mixer", "parameters", "accuracy", "test_bits", "mixer_ms", "step_ms", "peak_bytes", "steps", "batch", "layers", "dim",
        "heads", "window", "learning_rate", "bias_lr_scale", "seed")


def spread(values, text):
    """The mean of the seeds, and what the least and the most are."""
    return f"{text(statistics.mean(values))} | {text(min(values))} to {text(max(values))}"


def table(document):
    runs = list(document["runs"].values())
    first = runs[0]
    yield machine_of(document)
    yield (f"{first['layers']} layers of {first['dim']}, {first['steps']:,} steps of {first['batch']} images, "
           f"{document['training_images']:,} training images, seeds {', '.join(sorted({str(r['seed']) for r in runs}))}:")
    yield ""
    yield "| mixer | parameters | accuracy on the test images | of the seeds | bits an image | of the seeds | ms per step, mixer | whole | memory |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for mixer in dict.fromkeys(run["mixer"] for run in runs):
        own = [run for run in runs if run["mixer"] == mixer]
        accuracy = spread([100 * run["accuracy"] for run in own], lambda x: f"{x:.2f} %")
        bits = spread([run["test_bits"] for run in own], lambda x: f"{x:.3f}")
        times = " | ".join(f"{statistics.median(run[key] for run in own):.0f}" for key in ("mixer_ms", "step_ms"))
        memory = f"{max(run['peak_bytes'] for run in own) / 1e6:.0f} MB"
        yield f"| {NAMES[mixer]} | {own[0]['parameters']:,} | {accuracy} | {bits} | {times} | {memory} |"


def run_all(program, file, options):
    runs = {name: (*changes, *options) for name, changes in RUNS.items()}
    run_missing([program, "classify"], file, runs, lambda one: {key: one[key] for key in KEPT})


if __name__ == "__main__":
    sys.exit(command(__doc__, table, run_all))
