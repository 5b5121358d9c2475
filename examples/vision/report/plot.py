#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULTS.json DIRECTORY: loss curves, learned filters, what the keys look at and what is taken for what, as PNG images."""

import math
import pathlib
import sys

import matplotlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from curves import draw_losses, results_and_folder  # noqa: E402  (where they are comes first)
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


def plot_keys(run, names, file):
    """exp(k) as in the papers' Figures 9 to 12: where on an image each head of each layer looks, whatever the query."""
    looks, heads = run["keys"], min(HEADS, run["heads"])
    rows, columns = run["grid"]
    layers = len(looks[0]["layers"])
    figure = plt.figure(figsize=(0.62 * heads + 1.6, 0.66 * layers * len(looks) + 0.6))
    grid = figure.add_gridspec(len(looks) * layers, heads + 2, wspace=0.08, hspace=0.12)
    for place, look in enumerate(looks):
        image = figure.add_subplot(grid[place * layers:place * layers + min(2, layers), :2])
        side = run["patch"]
        width = columns * side
        image.imshow([look["pixels"][y * width:(y + 1) * width] for y in range(rows * side)], cmap="gray")
        image.set_title(names[look["label"]], fontsize=8, pad=2)
        image.axis("off")
        for layer, weights in enumerate(look["layers"]):
            for head in range(heads):
                of_head = weights[head * rows * columns:(head + 1) * rows * columns]
                axis = figure.add_subplot(grid[place * layers + layer, head + 2])
                axis.imshow([of_head[y * columns:(y + 1) * columns] for y in range(rows)], cmap="magma", vmin=0,
                            vmax=100, interpolation="nearest")
                axis.set_xticks([])
                axis.set_yticks([])
                if head == heads - 1:
                    axis.yaxis.set_label_position("right")
                    axis.set_ylabel(f"layer {layer + 1}", fontsize=7, rotation=0, labelpad=4, ha="left", va="center")
    figure.suptitle(f"{NAMES[run['mixer']]}: exp(k) over each image, by layer and head (of {heads}), as a share of "
                    "the head's largest", fontsize=9, y=0.91)
    figure.savefig(file, dpi=130, bbox_inches="tight")
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
    data, out = results_and_folder(__doc__)
    plot_losses(data, out / "loss.png")
    print(out / "loss.png")
    for run in data["results"]:
        names = FASHION if data["data"] == "fashion-mnist" else tuple(str(i) for i in range(run["classes"]))
        plot_confusion(run, names, out / f"confusion-{run['mixer']}.png")
        print(out / f"confusion-{run['mixer']}.png")
        if run["mixer"] == "conv2d":
            plot_filters(run, out / "filters.png")
            print(out / "filters.png")
            if "keys" in run:
                plot_keys(run, names, out / "keys.png")
                print(out / "keys.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
