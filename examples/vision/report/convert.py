#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained Transformer becomes an AFT-conv (AFT section 5.3, compatibility with Transformers).

convert.py PROGRAM RESULTS.json [OPTION...]   trains what RESULTS.json lacks; the options go to every run
convert.py --table RESULTS.json               prints the table as Markdown
convert.py --check RESULTS.json PAGE.md       fails if the page holds another
convert.py --draw RESULTS.json IMAGE.png      training losses beside each other

An attention model is trained. Then AFT-conv is trained for a part of its steps, from nothing and from the Transformer's weights.
A run that is finished is kept: what was interrupted goes on with the next call.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from curves import smoothed  # noqa: E402  (where they are comes first)
from kept_runs import command, machine_of, read, run_missing, write  # noqa: E402

STEPS, PART = 3750, 625
RUNS = {
    "attention": ("--mixer", "attention", "--steps", str(STEPS)),
    **{f"AFT-conv from nothing, seed {seed}": ("--mixer", "conv2d", "--steps", str(PART), "--seed", str(seed)) for seed in (1, 2, 3)},
    **{f"AFT-conv from attention's weights, seed {seed}":
       ("--mixer", "conv2d", "--steps", str(PART), "--seed", str(seed), "--begin-with") for seed in (1, 2, 3)},
}
KEPT = ("mixer", "parameters", "accuracy", "test_bits", "step_ms", "steps", "batch", "layers", "dim", "heads", "seed", "begun_with",
        "train_bits")


def kept(one):
    return {**{key: one[key] for key in KEPT}, "train_bits": [round(x, 4) for x in one["train_bits"]]}


def run_all(program, file, options):
    weights = pathlib.Path(file).with_name("attention.safetensors")
    document = read(file) if pathlib.Path(file).exists() else {"runs": {}}
    if "attention" in document["runs"] and not weights.exists():
        # Weights that are gone are trained again.
        del document["runs"]["attention"]
        write(file, document)
    runs = {}
    for name, arguments in RUNS.items():
        ends = ("--save", str(weights)) if name == "attention" else ()
        if arguments[-1] == "--begin-with":
            ends = (str(weights),)
        # The papers' comparison is of weights, not of optimizers: AdamW alone, and filters that begin flat, as theirs.
        filters = ("--bias-lr-scale", "10", "--filter-gain", "0") if "conv2d" in arguments else ()
        runs[name] = ("--matrix-lr", "0", *filters, *arguments, *ends, *options)
    draw(run_missing([program, "classify"], file, runs, kept), pathlib.Path(file).with_suffix(".png"))


def table(document):
    first = document["runs"]["attention"]
    yield machine_of(document)
    yield f"{first['layers']} layers of {first['dim']}, steps of {first['batch']} images, {document['training_images']:,} training images:"
    yield ""
    yield "| | steps | parameters | accuracy on the test images | bits an image |"
    yield "|---|---|---|---|---|"
    for name, run in document["runs"].items():
        yield f"| {name} | {run['steps']:,} | {run['parameters']:,} | {100 * run['accuracy']:.2f} % | {run['test_bits']:.3f} |"


def draw(document, file):
    import matplotlib  # pylint: disable=import-outside-toplevel

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # pylint: disable=import-outside-toplevel

    figure, axis = plt.subplots(figsize=(7, 4.2))
    colours = {"conv2d": "tab:blue", "begun": "tab:orange"}
    labels = set()
    for name, run in document["runs"].items():
        if run["mixer"] == "attention":
            continue
        kind, label = ("begun" if run["begun_with"] else "conv2d"), name.split(",")[0]
        losses = smoothed(run["train_bits"], 0.03)
        axis.plot(range(1, len(losses) + 1), losses, color=colours[kind], label=None if label in labels else label)
        labels.add(label)
    axis.set_xlabel("steps")
    axis.set_ylabel("training loss, bits an image")
    axis.set_ylim(0, 3.4)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--draw":
        draw(read(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(command(__doc__, table, run_all))
