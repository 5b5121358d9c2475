#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULTS.json DIRECTORY: the loss curves and each layer's learned position bias, as PNG images."""

import math
import pathlib
import sys

import matplotlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from curves import draw_losses, results_and_folder  # noqa: E402  (where they are comes first)
from kept_runs import NAMES  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen before)


def plot_losses(data, file):
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    draw_losses(axes, data, 0.05, lambda run: f"{NAMES[run['mixer']]}: {run['held_out_bits']:.2f} held out")
    for axis in axes:
        axis.axhline(data["order1_bits"], color="grey", linewidth=0.8, linestyle=":")
    axes[0].set_ylabel("training loss, bits a character")
    # At the right end, where no curve is near any more.
    axes[0].text(0.99, data["order1_bits"], "order-1 entropy", color="grey", fontsize=8, va="bottom", ha="right",
                 transform=axes[0].get_yaxis_transform())
    # The first steps fall from 8 bits and would leave no room for the rest.
    axes[0].set_ylim(top=4.5)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)


def bias_image(run, bias):
    """Rows and columns as the bias is read: (title of x, title of y, matrix), keys by their distance for bands."""
    rows, columns = bias["shape"]
    matrix = [bias["values"][r * columns:(r + 1) * columns] for r in range(rows)]
    if run["mixer"] == "full":
        # Future keys are never read: their entries are still what they started as.
        return "key s", "query t", [[x if s <= t else math.nan for s, x in enumerate(row)]
                                    for t, row in enumerate(matrix)], None
    if run["mixer"] == "local":
        matrix = [[x if t - (columns - 1) + j >= 0 else math.nan for j, x in enumerate(row)]
                  for t, row in enumerate(matrix)]
    vertical = "query t" if run["mixer"] == "local" else "head"
    return "key s - t", vertical, matrix, (-(columns - 1) - 0.5, 0.5, rows - 0.5, -0.5)


def plot_biases(run, file):
    layers = run["biases"]
    figure, axes = plt.subplots(1, len(layers), figsize=(3.2 * len(layers), 3.6), squeeze=False)
    for layer, (axis, bias) in enumerate(zip(axes[0], layers)):
        horizontal, vertical, matrix, extent = bias_image(run, bias)
        seen = [abs(x) for row in matrix for x in row if not math.isnan(x)]
        limit = max(seen) or 1.0
        image = axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", extent=extent,
                            interpolation="nearest")
        figure.colorbar(image, ax=axis, shrink=0.8)
        axis.set_title(f"layer {layer + 1}")
        axis.set_xlabel(horizontal)
        if layer == 0:
            axis.set_ylabel(vertical)
    figure.suptitle(f"{NAMES[run['mixer']]}: learned position bias w")
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)


def main():
    data, out = results_and_folder(__doc__)
    plot_losses(data, out / "loss.png")
    print(out / "loss.png")
    for run in data["results"]:
        if run.get("biases"):
            file = out / f"bias-{run['mixer']}.png"
            plot_biases(run, file)
            print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
