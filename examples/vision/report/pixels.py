#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images as sequences of pixels: how well the next one is said, and images continued from their upper half.

pixels.py PROGRAM RESULTS.json [OPTION...]   trains what RESULTS.json lacks; the options go to every run
pixels.py --table RESULTS.json               prints the table as Markdown
pixels.py --check RESULTS.json PAGE.md       fails if the page holds another
pixels.py --draw RESULTS.json IMAGE.png      the continued images beside the originals (AFT Figure 4)

The position bias of AFT-local as two factors and whole is the papers' Table 3. A run that is finished is kept: what was
interrupted goes on with the next call.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import command, machine_of, read, run_missing  # noqa: E402  (where they are comes first)

RUNS = {
    "AFT-local, w = u v^T": ("--mixer", "local"),
    "AFT-local, w learned whole": ("--mixer", "local", "--bias-rank", "0"),
    "attention": ("--mixer", "attention"),
}
KEPT = ("mixer", "parameters", "test_bits", "mixer_ms", "step_ms", "peak_bytes", "steps", "batch", "layers", "dim", "heads", "window",
        "bias_rank", "learning_rate", "bias_lr_scale", "seed", "pixels_per_second", "stream_us", "recompute_us", "state_bytes")


def as_text(images):
    """A line for an image, two digits for a pixel: a list would be a line for each."""
    return [bytes(image).hex() for image in images]


def kept(one):
    return {**{key: one[key] for key in KEPT}, "continued": as_text(one["continued"])}


def shared(results):
    return {"size": results["size"], "given_rows": results["given_rows"], "originals": as_text(results["originals"])}


def run_all(program, file, options):
    runs = {name: (*arguments, *options) for name, arguments in RUNS.items()}
    draw(run_missing([program, "pixels"], file, runs, kept, shared), pathlib.Path(file).with_suffix(".png"))


def table(document):
    first = next(iter(document["runs"].values()))
    rows, columns = document["size"]
    yield machine_of(document)
    yield (f"{first['steps']:,} steps of {first['batch']} images of {rows} x {columns} pixels, {first['layers']} layers of {first['dim']}, "
           f"seed {first['seed']}, {document['training_images']:,} training and {document['test_images']:,} test images:")
    yield ""
    yield ("| | window | parameters | bits a pixel of the test images | ms per step, mixer | whole | us a pixel by stream | recomputed | "
           "state of a sequence |")
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, run in document["runs"].items():
        window = f"{run['window']} keys" if run["mixer"] == "local" else "all"
        yield (f"| {name} | {window} | {run['parameters']:,} | {run['test_bits']:.3f} | {run['mixer_ms']:.0f} | {run['step_ms']:.0f} | "
               f"{run['stream_us']:.0f} | {run['recompute_us']:,.0f} | {run['state_bytes'] / 1e3:,.0f} kB |")


def draw(document, file):
    import matplotlib  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # pylint: disable=import-outside-toplevel

    def images(lines):
        return [numpy.frombuffer(bytes.fromhex(line), dtype=numpy.uint8).reshape(document["size"]) for line in lines]

    originals = images(document["originals"])
    given = [image.copy() for image in originals]
    for image in given:
        image[document["given_rows"]:] = 0
    rows = {"given": given, **{name: images(run["continued"]) for name, run in document["runs"].items()}, "original": originals}
    figure, axes = plt.subplots(len(rows), len(originals), figsize=(0.9 * len(originals) + 1.6, 0.95 * len(rows)), squeeze=False)
    for row, (name, pictures) in zip(axes, rows.items()):
        for axis, picture in zip(row, pictures):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            if name not in ("given", "original"):
                axis.axhline(document["given_rows"] - 0.5, color="tab:orange", linewidth=0.6)
        row[0].set_ylabel(name.replace(", ", "\n"), fontsize=7, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.4)
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--draw":
        draw(read(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(command(__doc__, table, run_all))
