#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the bias that each operator adds, as w[t,s]: biases.py [folder]. The pictures beside this file come from it."""

import pathlib
import sys

import matplotlib
import numpy

matplotlib.use("svg")
# Identifiers that do not change from run to run, and text as text: a picture that has not changed is the same file.
matplotlib.rcParams.update({"svg.hashsalt": "aft", "svg.fonttype": "none", "font.family": "sans-serif",
                            "font.size": 10, "figure.facecolor": "white"})
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)

T = 24
t, s = numpy.mgrid[0:T, 0:T]
SHADE = dict(cmap="RdBu_r", vmin=-2, vmax=2, interpolation="nearest")


def smooth(seed, rows, columns):
    """A learned bias has no sharp corners; neither has this one."""
    noise = numpy.random.default_rng(seed).normal(size=(rows + 8, columns + 8))
    kernel = numpy.exp(-numpy.linspace(-2, 2, 9) ** 2)
    for axis in (0, 1):
        noise = numpy.apply_along_axis(lambda x: numpy.convolve(x, kernel, "valid"), axis, noise)
    return 2 * noise / numpy.abs(noise).max()


def panel(axes, w, title, hidden=None):
    axes.imshow(w, **SHADE)
    if hidden is not None:
        grey = numpy.zeros((*w.shape, 4))
        grey[hidden] = (0.75, 0.75, 0.75, 1)
        axes.imshow(grey, interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("key s")
    axes.set_ylabel("query t")
    axes.set_xticks([])
    axes.set_yticks([])


def figure(folder, name, *panels):
    fig, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 2.8), layout="constrained")
    for ax, arguments in zip(numpy.atleast_1d(axes), panels):
        panel(ax, *arguments)
    fig.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    dense = smooth(1, T, T)
    factorized = smooth(2, T, 2) @ smooth(3, 2, T)
    figure(folder, "full", (dense, "dense"), (factorized, "u vᵀ, rank 2"), (dense, "causal", s > t))
    inside = abs(t - s) <= 4
    figure(folder, "local", (numpy.where(inside, dense, 0), "outside: 0"),
           (numpy.where(inside, dense, 0), "outside: excluded", ~inside),
           (numpy.where(inside, dense, 0), "causal", s > t))
    figure(folder, "simple", (numpy.zeros((T, T)), "simple"), (numpy.zeros((T, T)), "causal", s > t))
    taps = numpy.array([-0.4, 0.6, 1.6, 1.9, 1.2, 0.3, -0.8])
    offset = s - t + 3
    line = numpy.where((offset >= 0) & (offset < 7), taps[numpy.clip(offset, 0, 6)], 0)
    # A 5 x 5 grid in row-major order, so that the axes are points: a 3 x 3 filter reaches three bands of them.
    side = 5
    point = numpy.arange(side * side)
    dy = point[None] // side - point[:, None] // side + 1
    dx = point[None] % side - point[:, None] % side + 1
    square = smooth(5, 3, 3)
    under = (dy >= 0) & (dy < 3) & (dx >= 0) & (dx < 3)
    grid = numpy.where(under, square[numpy.clip(dy, 0, 2), numpy.clip(dx, 0, 2)], 0)
    causal_offset = s - t + 6
    causal = numpy.where((causal_offset >= 0) & (causal_offset < 7), taps[numpy.clip(causal_offset, 0, 6)], 0)
    figure(folder, "conv", (line, "7 taps"), (causal, "7 taps, causal", s > t), (grid, "3 x 3 taps, 5 x 5 grid"))


if __name__ == "__main__":
    main()
