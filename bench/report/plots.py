# SPDX-License-Identifier: Apache-2.0
"""The plots of docs/benchmarks.md, each from one result."""

import hashlib
import json
import pathlib

import bars

SHORT_NAMES = {"B8_T1024_d512": "B8 T1024", "B32_T197_d384": "B32 T197", "B2_T3072_d256": "B2 T3072",
               "B1_T4096_d512": "B1 T4096", "B32_T1024_d512": "268 MB", "B2_T1024_d512": "17 MB"}
GROWTH = (("aft_full", "AFT-full, dense bias", "tab:blue", "-"), ("aft_factorized", "AFT-full, rank 64", "tab:cyan", "-"),
          ("aft_local32", "AFT-local, 63 keys", "tab:green", "-"), ("aft_simple", "AFT-simple", "tab:olive", "-"),
          ("sdpa", "attention (PyTorch)", "tab:red", "--"), ("eager", "AFT-full in PyTorch", "tab:orange", "--"))
CONTEXTS = (("sdpa", "attention with a cache (PyTorch)", "tab:red", "--"),
            ("eager", "attention, two products", "tab:orange", "--"), ("aft_full", "AFT-full", "tab:blue", "-"),
            ("aft_conv32", "AFT-conv, 32 taps", "tab:purple", "-"), ("aft_local32", "AFT-local, 32 keys", "tab:green", "-."),
            ("aft_simple", "AFT-simple", "tab:olive", "-"))
IMAGES = ("growth", "roofline", "ceilings", "peers", "threads")
INFERENCE_IMAGES = ("contexts",)


def digest(document):
    """Names the result that a plot was drawn from."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def growth_times(result):
    """{contestant: [(T, seconds)]}"""
    lines = {}
    for name, race in result.races.items():
        if name.startswith("growth/T"):
            T = int(name.split("/T")[1].split("_")[0])
            for contestant in race.seconds:
                lines.setdefault(contestant, []).append((T, race.median(contestant)))
    return {k: sorted(v) for k, v in lines.items()}


def growth_memory(document):
    lines = {}
    for figure in document.get("memory", []):
        call = {"eager_full": "eager"}.get(figure["call"], figure["call"])
        lines.setdefault(call, []).append((figure["T"], figure["bytes"]))
    return {k: sorted(v) for k, v in lines.items()}


def draw_growth(plt, result):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4))
    for axis, lines in ((left, growth_times(result)), (right, growth_memory(result.document))):
        for key, label, colour, style in GROWTH:
            if key in lines:
                # Less than a page is a page.
                axis.plot([T for T, _ in lines[key]], [max(y, 4096) if axis is right else y for _, y in lines[key]],
                          style, color=colour, label=label, marker="o", markersize=3)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yscale("log")
        axis.set_xlabel("positions T")
        axis.grid(alpha=0.25)
    left.set_ylabel(f"seconds a call, {result.document['threads']} threads")
    right.set_ylabel("peak bytes beyond inputs and output")
    left.set_title("time, one sequence of 512 channels")
    right.set_title("memory, the same calls")
    left.legend(frameon=False, fontsize=8)
    return figure


def context_races(result, sequences):
    """[(T, race)] of so many sequences."""
    races = [(int(name.split("/T")[1].split("_")[0]), race) for name, race in result.races.items()
             if name.startswith("contexts/T") and f"_B{sequences}_" in name]
    return sorted(races, key=lambda pair: pair[0])


def draw_contexts(plt, result):
    """Time and memory of a token over the context. Before there is a result the axes are drawn all the same, as pages show them."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9))
    for axis, sequences in zip(axes, (1, 32, None)):
        races = context_races(result, sequences or 1) if result else []
        for key, label, colour, style in CONTEXTS:
            if sequences:
                points = [(T, 1e6 * race.median(key) / sequences) for T, race in races if key in race]
            else:
                points = [(T, race.facts[f"bytes.{key}"]) for T, race in races if f"bytes.{key}" in race.facts]
            if points:
                axis.plot(*zip(*points), style, color=colour, label=label, marker="o", markersize=3)
        if not races:
            axis.text(0.5, 0.5, "not measured", ha="center", transform=axis.transAxes)
        else:
            axis.set_xscale("log", base=2)
            axis.set_xticks([T for T, _ in races], [str(T) for T, _ in races], minor=False)
            axis.set_yscale("log")
        axis.set_xlabel("positions of context")
        axis.grid(alpha=0.25)
    axes[0].set_title("time a token, one sequence")
    axes[1].set_title("time a token, 32 sequences in a call")
    axes[2].set_title("memory of a sequence")
    axes[0].set_ylabel("microseconds" + (f", {result.document['threads']} threads" if result else ""))
    axes[2].set_ylabel("bytes")
    if axes[0].lines:
        axes[0].legend(frameon=False, fontsize=7)
    return figure


def machine_rates(result):
    """Flops per second of the product and bytes per second of the stream, medians over the races that hold them."""
    flops = [race.facts["flops.sgemm"] / race.median("sgemm") for name, race in result.races.items()
             if "sgemm" in race and "threads" not in name and "one_thread" not in name]
    memory = [race for name, race in result.races.items() if "B32_T1024" in name and "stream" in race]
    moved = [race.facts["bytes.stream"] / race.median("stream") for race in memory]
    return sorted(flops)[len(flops) // 2] if flops else None, sorted(moved)[len(moved) // 2] if moved else None


def draw_roofline(plt, result):
    flops, moved = machine_rates(result)
    figure, axis = plt.subplots(figsize=(8, 5))
    if flops and moved:
        x = [2.0**i for i in range(-4, 13)]
        axis.plot(x, [min(flops, moved * i) / 1e9 for i in x], color="black", linewidth=1.2)
        axis.text(x[-1], flops / 1e9 * 1.06, "oneDNN sgemm", ha="right", fontsize=8)
        axis.text(1 / 8, moved / 8e9, "stream from memory  ", ha="right", fontsize=8)
    markers = {"full": "o", "full_backward": "s", "local32": "^", "local256": "v", "local32_backward": "<", "simple": "D",
               "conv": "P", "conv_backward": "X"}
    seen = set()
    for name, race in result.races.items():
        parts = name.split("/")
        if parts[0] not in markers or len(parts) != 3 or parts[2] != "float":
            continue
        who = "aft" if "aft" in race else "aft_causal"
        work, moving = race.facts.get("flops." + who), race.facts.get("bytes." + who)
        if not work or not moving:
            continue
        colour = f"C{list(markers).index(parts[0])}"
        axis.plot(work / moving, work / race.median(who) / 1e9, markers[parts[0]], color=colour,
                  label=None if parts[0] in seen else parts[0].replace("_", " "))
        seen.add(parts[0])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("flops a byte of inputs and outputs")
    axis.set_ylabel(f"useful Gflop/s, {result.document['threads']} threads, float")
    axis.grid(alpha=0.25)
    axis.set_xlim(1 / 32, 4096)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def label(bar):
    shape = bar.race.split("/")[1]
    for long, short in SHORT_NAMES.items():
        shape = shape.replace(long, short)
    return bar.work if "k11" in shape or "MB" in bar.work else f"{bar.work}, {shape}"


def bar_chart(plt, rows, title, logarithmic):
    figure, axis = plt.subplots(figsize=(8, 0.9 + 0.27 * len(rows)))
    names = [f"{label(r.bar)}" + (f", over {r.bar.against}" if logarithmic else "") for r in rows]
    heights = range(len(rows))
    colours = {"goal": "tab:green", "first bar": "tab:olive", "missed": "tab:red"}
    axis.barh(heights, [r.median for r in rows], color=[colours[r.verdict] for r in rows], height=0.62,
              xerr=[[r.median - r.q1 for r in rows], [r.q3 - r.median for r in rows]],
              error_kw={"elinewidth": 0.8, "alpha": 0.6})
    for y, r in zip(heights, rows):
        axis.plot([r.bar.first] * 2, [y - 0.42, y + 0.42], color="black", linewidth=1)
        if r.bar.goal is not None:
            axis.plot([r.bar.goal] * 2, [y - 0.42, y + 0.42], color="black", linewidth=1, linestyle=":")
    axis.set_yticks(list(heights), names, fontsize=7)
    axis.invert_yaxis()
    axis.margins(y=0.01)
    if logarithmic:
        axis.set_xscale("log")
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.25, axis="x")
    return figure


def draw_ceilings(plt, result):
    rows = [r for r in bars.evaluate(result, bars.ceilings()) if not r.bar.lower]
    return bar_chart(plt, rows, "speed as a part of the ceiling's; lines: first bar and (dotted) goal", False) if rows else None


def draw_peers(plt, result):
    rows = list(bars.evaluate(result, bars.peers()))
    return bar_chart(plt, rows, "speed over the peer's; line: the bar", True) if rows else None


def draw_threads(plt, result):
    races = {n: r for n, r in result.races.items() if n.startswith("threads_")}
    shapes = [s for s in ("B1_T64_d64", "B1_T256_d64", "B8_T1024_d512", "B1_T4096_d512")
              if any(f"/{s}/" in n for n in races)]
    if not shapes:
        return None
    figure, axes = plt.subplots(1, len(shapes), figsize=(3 * len(shapes), 3.2), sharey=True, squeeze=False)
    for axis, shape in zip(axes[0], shapes):
        for i, call in enumerate(("full", "local32", "simple", "full_backward")):
            race = races.get(f"threads_{call}/{shape}/float")
            if race is None:
                continue
            for who, style in (("aft", "-"), ("sgemm" if call == "full" else "none", ":")):
                counts = sorted(int(n.rpartition("_")[2]) for n in race.seconds if n.startswith(who + "_"))
                if counts:
                    axis.plot(counts, [race.median(f"{who}_1") / race.median(f"{who}_{n}") for n in counts], style,
                              color=f"C{i}" if who == "aft" else "black", marker="o", markersize=3,
                              label=call.replace("_", " ") if who == "aft" else "oneDNN sgemm")
        axis.set_title(shape.replace("_", " "), fontsize=9)
        axis.set_xlabel("threads")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("times faster than one thread")
    handles = {}
    for axis in axes[0]:
        for handle, name in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(name, handle)
    axes[0][0].legend(handles.values(), handles.keys(), frameon=False, fontsize=7)
    return figure


def drawn_from(result):
    """What a plot says of its origin."""
    return f"drawn from result {digest(result.document) if result else 'none'}"


def draw_all(images, result, folder):
    import matplotlib  # noqa: PLC0415  (checking the documents needs no plots)

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    # Text stays text, and the same result gives the same file.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "aft", "font.size": 9})
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in images:
        figure = globals()["draw_" + name](plt, result)
        if figure is None:
            continue
        figure.tight_layout()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Description": drawn_from(result)})
        plt.close(figure)
