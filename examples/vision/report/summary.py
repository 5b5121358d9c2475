#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/papers/images.md says about a run of examples/vision.

summary.py RESULTS.json SUMMARY.json       keeps the table of a run, and adds machine and commit
summary.py --table SUMMARY.json            prints it as Markdown
summary.py --check SUMMARY.json PAGE.md    fails if the page holds another table
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import NAMES, machine_of, origin, read, show_or_check, write  # noqa: E402  (where they are comes first)

SHARED = ("task", "data", "training_images", "test_images", "compiler", "products", "threads")
KEPT = ("mixer", "parameters", "accuracy", "test_bits", "confusion", "mixer_ms", "step_ms", "peak_bytes", "grid",
        "patch", "dim", "layers", "heads", "window", "classes", "batch", "steps", "learning_rate", "matrix_learning_rate", "bias_lr_scale",
        "filter_gain", "seed")


def summary(results):
    return {**origin(), **{key: results[key] for key in SHARED},
            "results": [{key: run[key] for key in KEPT} for run in results["results"]]}


def table(document):
    run = document["results"][0]
    epochs = run["steps"] * run["batch"] / document["training_images"]
    yield machine_of(document)
    yield (f"{run['steps']:,} steps of {run['batch']} images, {epochs:.1f} times the {document['training_images']:,} "
           f"training images, {run['layers']} layers of {run['dim']}:")
    yield ""
    yield ("| mixer | heads | parameters | accuracy on the test images | bits an image | ms per step, mixer | whole | "
           "peak memory |")
    yield "|---|---|---|---|---|---|---|---|"
    for run in document["results"]:
        heads = run["heads"] if run["mixer"] in ("conv2d", "attention") else 1
        name = NAMES[run["mixer"]]
        if run["mixer"] == "conv2d":
            name += f", {run['window']} x {run['window']} taps"
        yield (f"| {name} | {heads} | {run['parameters']:,} | {100 * run['accuracy']:.2f} % | {run['test_bits']:.3f} | "
               f"{run['mixer_ms']:.0f} | {run['step_ms']:.0f} | {run['peak_bytes'] / 1e6:.0f} MB |")


def main():
    arguments = sys.argv[1:]
    done = show_or_check(arguments, table)
    if done is not None:
        return done
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    write(arguments[1], summary(read(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
