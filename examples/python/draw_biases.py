#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the position biases that a checkpoint's model has learned, a panel for each block, as a PNG image.

The checkpoint may come from train_characters.py or from the C++ program.
"""

import argparse
import pathlib
import sys

import matplotlib
import numpy
import safetensors

import checkpoint

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  pylint: disable=wrong-import-position


def picture(mixer, bias):
    """What is shown of a bias: the matrix, NaN where no pair is, its extent, and names of both axes."""
    rows, columns = bias.shape
    t, j = numpy.indices(bias.shape)
    if mixer == "full":
        # Keys to come are hidden, and their entries never learned.
        return numpy.where(j <= t, bias, numpy.nan), (-0.5, columns - 0.5, rows - 0.5, -0.5), "key s", "query t"
    extent = (-columns + 0.5, 0.5, rows - 0.5, -0.5)
    if mixer == "local":
        return numpy.where(t - (columns - 1) + j >= 0, bias, numpy.nan), extent, "key s - t", "query t"
    return bias, extent, "key s - t", "head"


def draw(mixer, biases):
    """A figure of the biases of the blocks; each panel has a scale of its own, from red above 0 to blue below."""
    figure, axes = plt.subplots(1, len(biases), figsize=(3.4 * len(biases), 3.6), squeeze=False, layout="constrained")
    for number, (axis, bias) in enumerate(zip(axes[0], biases), 1):
        matrix, extent, across, down = picture(mixer, bias)
        limit = float(numpy.nanmax(numpy.abs(matrix))) or 1.0
        image = axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent, aspect="auto",
                            interpolation="nearest")
        figure.colorbar(image, ax=axis)
        axis.set(title=f"block {number}", xlabel=across, ylabel=down if number == 1 else "")
    figure.suptitle(f"AFT-{mixer}: learned position bias w")
    return figure


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("png", type=pathlib.Path)
    line = parser.parse_args(arguments)
    try:
        figure = draw(*checkpoint.read_biases(line.checkpoint))
        figure.savefig(line.png, format="png", dpi=130)
    except (OSError, ValueError, safetensors.SafetensorError) as wrong:
        sys.exit(f"draw_biases.py: {wrong}")
    plt.close(figure)


if __name__ == "__main__":
    main()
