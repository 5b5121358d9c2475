#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The papers' ablations in miniature: one short run each, all with one seed.

ablations.py PROGRAM RESULTS.json [OPTION...]   runs what RESULTS.json lacks; the options go to every run
ablations.py --table RESULTS.json               prints the tables as Markdown
ablations.py --check RESULTS.json PAGE.md       fails if the page holds others

A run that is finished is kept: what was interrupted goes on with the next call.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import command, machine_of, run_missing, write  # noqa: E402  (where they are comes first)

# What each asks, and its runs: a name and what differs from the default. The default is 7 x 7 taps, as in the papers' Table 10.
GROUPS = {
    "Seed": {"1": (), "2": ("--seed", "2"), "3": ("--seed", "3")},
    "Kernel size (AFT Table 11)": {f"{n} x {n} taps": ("--window", str(n)) for n in (3, 5, 7, 11, 15, 21, 27)},
    "Heads": {str(n): ("--heads", str(n)) for n in (1, 2, 4, 8, 16, 32)},
    "Form of the filter (AFT Table 10)": {"by gain and shift, Eq. 8": (), "naive": ("--naive-filter",)},
    "The query (AFT Table 12)": {"with": (), "without": ("--without-query",)},
    "Keys outside the filter (AFT, global connectivity)": {"count with w = 0": (), "excluded": ("--window-only",)},
    "Taps of a head (AFT Eq. 10)": {"all": (), "one, by Gumbel samples": ("--one-tap",)},
    "Grid of the test images (AFT, variable size inputs)": {"14 x 14, as it was trained": ("--test-grids", "20,28")},
    "Entropy in the loss (AFT Eq. 9)": {"none": (), **{f"{x}": ("--filter-entropy", x) for x in ("0.001", "0.01", "0.1")}},
    "AFT-full's bias (AFT Table 9)": {"whole": ("--mixer", "full"),
                                      **{f"two factors of rank {n}": ("--mixer", "full", "--bias-rank", str(n)) for n in (8, 32, 128)}},
}
DEFAULTS = ("--mixer", "conv2d", "--images", "20000", "--epochs", "1", "--layers", "3", "--window", "7", "--heads", "16")
KEPT = ("parameters", "accuracy", "test_bits", "mixer_ms", "step_ms", "steps", "batch", "layers", "dim", "heads", "window",
        "naive_filter", "gated", "connected", "one_tap", "filter_entropy", "learning_rate", "bias_lr_scale", "seed")


def merged(defaults, changes):
    """The defaults without those that a run has otherwise: the program takes an option once."""
    named = set(changes[::2]) if changes and len(changes) % 2 == 0 else set()
    return [x for pair in zip(defaults[::2], defaults[1::2]) if pair[0] not in named for x in pair] + list(changes)


def by_adamw(arguments):
    """Ablations are by AdamW alone, as the papers' are, with filters that begin as theirs, at the rate that suits it."""
    filters = () if "full" in arguments else ("--bias-lr-scale", "10", "--filter-gain", "0")
    return (*arguments, "--matrix-lr", "0", *filters)


def name_of(changes):
    """All that a run is given, in an order of its own."""
    return " ".join(sorted(" ".join(merged(DEFAULTS, changes)).replace(" --", "\n--").split("\n")))


def spread_of(biases):
    """The mean over all filters of their softmax's entropy over that of a constant filter: 1 where a filter is flat, 0 for one tap. None
    without filters."""
    import numpy  # pylint: disable=import-outside-toplevel

    shares = []
    for bias in biases:
        r = numpy.array(bias["values"], dtype=float).reshape(bias["shape"][0], -1)
        p = numpy.exp(r - r.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        shares += list(-(p * numpy.log(numpy.maximum(p, 1e-300))).sum(1) / numpy.log(r.shape[1]))
    return float(numpy.mean(shares))


def kept(one):
    return {**{key: one[key] for key in KEPT}, "spread": spread_of(one["biases"]) if one["mixer"] == "conv2d" else None, "other_grids": one.get("other_grids", [])}


def run_all(program, file, options):
    runs = {name_of(changes): (*by_adamw(merged(DEFAULTS, changes)), *options) for group in GROUPS.values() for changes in group.values()}
    document = run_missing([program, "classify"], file, runs, kept)
    document["groups"] = {title: {label: name_of(changes) for label, changes in group.items()} for title, group in GROUPS.items()}
    write(file, document)


def table(document):
    first = next(iter(document["runs"].values()))
    yield machine_of(document)
    yield (f"{first['steps']:,} steps of {first['batch']} images, {document['training_images']:,} training images, {first['layers']} layers of "
           f"{first['dim']}, seed {first['seed']}:")
    yield ""
    yield "| | | parameters | accuracy | bits an image | entropy of the filters | ms per step |"
    yield "|---|---|---|---|---|---|---|"
    for title, group in document["groups"].items():
        for label, name in group.items():
            run = document["runs"][name]
            yield (f"| {title} | {label} | {run['parameters']:,} | {100 * run['accuracy']:.2f} % | {run['test_bits']:.3f} | "
                   f"{'' if run['spread'] is None else format(run['spread'], '.2f')} | {run['step_ms']:.0f} |")
            title = ""
            for other in run["other_grids"]:
                yield (f"| | {' x '.join(map(str, other['grid']))} | the same | {100 * other['accuracy']:.2f} % | "
                       f"{other['test_bits']:.3f} | | |")


if __name__ == "__main__":
    sys.exit(command(__doc__, table, run_all))
