#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences that are cut over two ranks, beside whole ones: do the models learn the same?

scale.py PROGRAM RESULTS.json [OPTION...]   trains what RESULTS.json lacks; the options go to every run
scale.py --table RESULTS.json               prints the table as Markdown
scale.py --check RESULTS.json PAGE.md       fails if the page holds another

One process with three seeds says by how much runs differ; mpirun's two ranks have the first of them. A run that is finished is kept:
what was interrupted goes on with the next call.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import NAMES, command, machine_of, run_missing  # noqa: E402  (where they are comes first)

MIXERS = ("local", "conv", "simple")
SEEDS = (1, 2, 3)
# Open MPI refuses root and more processes than cores unless it is told.
TWO_RANKS = ("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
             "OMP_WAIT_POLICY=passive", "mpirun", "-n", "2")
# So short that the rate is above the usual one.
SIZES = {"--context": "8192", "--dim": "64", "--heads": "16", "--layers": "2", "--batch": "1", "--steps": "200", "--lr": "8e-3",
         "--generate": "0"}
KEPT = ("mixer", "parameters", "held_out_bits", "context", "dim", "layers", "heads", "window", "batch", "steps", "learning_rate",
        "bias_lr_scale", "seed", "received_in_calls", "received_in_sums")


def run_all(program, file, options):
    sizes = [word for name, value in SIZES.items() if name not in options for word in (name, value)]

    def runs(words, seeds, threads):
        return {f"{mixer} {words} {seed}": ("--mixer", mixer, "--seed", str(seed), "--threads", threads, *sizes, *options)
                for mixer in MIXERS for seed in seeds}

    def kept(one):
        return {key: one[key] for key in KEPT if key in one}

    # The threads of both together: as many as a machine of two cores has.
    run_missing([*TWO_RANKS, program], file, runs("two ranks", SEEDS[:1], "1"), kept)
    document = run_missing([program], file, runs("one rank", SEEDS, "2"), kept)
    print("\n".join(("", *table(document))))


def megabytes(values):
    return " and ".join(f"{value / 1e6:.2f}" for value in values)


def table(document):
    runs = list(document["runs"].values())
    first = runs[0]
    yield machine_of(document)
    yield (f"{first['steps']} steps of {first['batch']} x {first['context']:,} bytes, {first['layers']} layers of {first['dim']}; bits per "
           "character of the held-out part, and what the first and the second rank receive in a step:")
    yield ""
    yield ("| mixer | one rank, seeds " + " | seed ".join(str(seed) for seed in SEEDS) +
           " | two ranks, seed 1 | MB in the operators' calls | MB of losses and gradients |")
    yield "|---|---|---|---|---|---|---|"
    for mixer in MIXERS:
        own = [run for run in runs if run["mixer"] == mixer]
        [cut] = [run for run in own if "received_in_calls" in run]
        whole = sorted((run for run in own if run is not cut), key=lambda run: run["seed"])
        bits = " | ".join(f"{run['held_out_bits']:.4f}" for run in (*whole, cut))
        yield f"| {NAMES[mixer]} | {bits} | {megabytes(cut['received_in_calls'])} | {megabytes(cut['received_in_sums'])} |"


if __name__ == "__main__":
    sys.exit(command(__doc__, table, run_all))
