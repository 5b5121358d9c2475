#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULTS.json DIRECTORY: loss curves, learned filters and what is taken for what, as PNG images."""

import json
import math
import pathlib
import sys

import matplotlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from curves import draw_losses  # noqa: E402  (where they are comes first)
from kept_runs import NAMES  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen before)

FASHION = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
# The papers show as many heads.
HEADS = 16


def plot_losses(data, file):
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    draw_losses(axes, data, 0.01, lambda run: f"{NAMES[run['mixer']]}: {100 * run['accuracy']:.2f} % right")
    axes[0].set_ylim(0, 2.5)
    axes[0].set_ylabel("training loss, bits an image")
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)


def plot_filters(run, file):
    """exp(w) - 1 as in the papers' Figure 6: what a tap adds to a weight of 1. A scale for each head."""
    layers = run["biases"]
    heads = min(HEADS, layers[0]["shape"][0])
    size = (0.8 * heads + 0.6, 0.85 * len(layers) + 0.7)
    figure, axes = plt.subplots(len(layers), heads, figsize=size, squeeze=False)
    for layer, bias in enumerate(layers):
        _, height, width = bias["shape"]
        for head in range(heads):
            values = bias["values"][head * height * width:(head + 1) * height * width]
            taps = [[math.expm1(x) for x in values[row * width:(row + 1) * width]] for row in range(height)]
            limit = max(abs(x) for row in taps for x in row) or 1.0
            axis = axes[layer][head]
            axis.imshow(taps, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"{limit:.2g}", fontsize=7, pad=2)
            if head == 0:
                axis.set_ylabel(f"layer {layer + 1}", fontsize=8)
    figure.suptitle(f"{NAMES[run['mixer']]}: exp(w) - 1 of the first {heads} heads, with the largest size of each",
                    fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)


def plot_confusion(run, names, file):
    count = run["classes"]
    rows = [run["confusion"][label * count:(label + 1) * count] for label in range(count)]
    shares = [[100 * n / (sum(row) or 1) for n in row] for row in rows]
    figure, axis = plt.subplots(figsize=(5.6, 5.2))
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    for label, row in enumerate(shares):
        for predicted, share in enumerate(row):
            if round(share) > 0:
                axis.text(predicted, label, f"{share:.0f}", ha="center", va="center", fontsize=7,
                          color="white" if share > 50 else "black")
    axis.set_xticks(range(count), names, rotation=60, ha="right", fontsize=8)
    axis.set_yticks(range(count), names, fontsize=8)
    axis.set_xlabel("taken for")
    axis.set_ylabel("is")
    axis.set_title(f"{NAMES[run['mixer']]}: percent of each class", fontsize=10)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    data = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    plot_losses(data, out / "loss.png")
    print(out / "loss.png")
    for run in data["results"]:
        names = FASHION if data["data"] == "fashion-mnist" else tuple(str(i) for i in range(run["classes"]))
        plot_confusion(run, names, out / f"confusion-{run['mixer']}.png")
        print(out / f"confusion-{run['mixer']}.png")
        if run["mixer"] == "conv2d":
            plot_filters(run, out / "filters.png")
            print(out / "filters.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
