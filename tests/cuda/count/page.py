# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/developing/cuda/counts.md."""

import estimate
from calls import sizes
from kernels import per_thousand

BEGIN, END = "<!-- counts: begin -->\n", "<!-- counts: end -->\n"
SHOWN = ("HGMMA", "HMMA", "FFMA", "MUFU", "IMAD", "integer", "LDG", "STG", "LDS", "STS", "LDSM", "LDGSTS", "convert", "branch")


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def kernel_table(kernels, names):
    text = row("kernel", "architecture", "instructions a turn", "multiply-adds a turn", "instructions for 1024", "results",
               *SHOWN) + "|---|---|" + "---:|" * (4 + len(SHOWN)) + "\n"
    for name in sorted(names):
        for arch, figures in kernels.get(name, {}).items():
            if figures["loop"] == 0:
                continue
            # Multiply-adds outside tensor cores are also those of exp and the like.
            rate = f"{per_thousand(figures):.2f}" if figures.get("tensor") else "-"
            text += row(f"`{name}`", arch, figures["loop"], figures["multiply_adds"] if figures.get("tensor") else "-", rate,
                        figures.get("results_loop", "-"), *[figures["classes"].get(c, 0) for c in SHOWN])
    return text


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}"


def call_table(counts, registers, measured):
    text = row("call", "type", "pass", "device", "launches", "blocks", "waves of the widest", "least MB", "MB moved",
               "roofline ms", "least ms", "roofline / least", "most ms", "roofline / most", "H200 ms")
    text += "|---|---|---|---|" + "---:|" * 11 + "\n"
    for call in counts["calls"].values():
        size, backward = sizes(call["case"]), call["pass"] != "forward"
        least = size.least_bytes(2 if call["type"] == "bf16" else 4, backward)
        roof = max(estimate.roofline(size, call["type"], backward))
        for device, arch in (("warpgroups", "sm_90a"), ("mma", "sm_100")):
            if device == "mma" and call["mma"] == call["warpgroups"]:
                continue
            one = {**call, "launches": call[device]}
            kernels = {name: by_arch[arch] for name, by_arch in counts["kernels"].items() if arch in by_arch}
            low, high, moved = estimate.call_seconds(one, kernels, registers[arch], size)
            widest = max(one["launches"], key=lambda launch: launch[1])
            used = registers[arch].get(widest[0], {"registers": 32, "shared": 0})
            rounds = estimate.waves(widest[1], widest[2], used["registers"], used["shared"] + widest[3])
            missing = estimate.not_estimated(one)
            known = measured.get((call["case"], call["type"], call["pass"]), "-") if device == "warpgroups" else "-"
            text += row(call["case"], call["type"], call["pass"], arch, len(one["launches"]),
                        sum(launch[1] for launch in one["launches"]), f"{rounds:.1f} `{widest[0]}`", f"{least / 1e6:.0f}",
                        f"{moved / 1e6:.0f}", milliseconds(roof), "-" if missing else milliseconds(low),
                        "-" if missing else f"{roof / low:.2f}", "-" if missing or size.step else milliseconds(high),
                        "-" if missing or size.step else f"{roof / high:.2f}", known)
    return text


def launch_table(calls, case, kind, pass_):
    text = row("kernel", "blocks", "threads", "shared at launch") + "|---|---:|---:|---:|\n"
    for call in calls.values():
        if (call["case"], call["type"], call["pass"]) == (case, kind, pass_):
            for name, blocks, threads, dynamic in call["warpgroups"]:
                text += row(f"`{name}`", blocks, threads, dynamic)
    return text


def worked(counts, registers):
    """The arithmetic of one line, with its numbers."""
    call = next(c for c in counts["calls"].values() if c["case"].startswith("full causal B128") and c["type"] == "bf16")
    size = sizes(call["case"])
    bytes_, adds = estimate.roofline(size, "bf16", False)
    figures = counts["kernels"]["gemm_wgmma<query_lines>"]["sm_90a"]
    pairs = size.tile_pairs(128, 64)
    work = 2 * pairs * size.B * size.d
    low, high, moved = estimate.call_seconds({**call, "launches": call["warpgroups"]},
                                             {n: a["sm_90a"] for n, a in counts["kernels"].items() if "sm_90a" in a},
                                             registers["sm_90a"], size)
    return (
        f"{call['case']}, bf16, forward. Pairs that rows see: {size.visible()}; in the tiles of 128 rows and 64 keys that they "
        f"touch: {pairs}. Least bytes: 2 ({size.B} {size.T} (3 {size.d} + {size.keys}) + {size.bias_elements()}) = "
        f"{size.least_bytes(2, False)}, {milliseconds(bytes_)} ms at 3.35 TB/s. Least multiply-adds: 2 {size.visible()} "
        f"{size.B} {size.d} = {size.least_multiply_adds(False)}, {milliseconds(adds)} ms at 989/2 10^12 a second: the roofline is the "
        f"larger. `gemm_wgmma` makes 2 {pairs} {size.B} {size.d} = {work}, {milliseconds(work / estimate.MULTIPLY_ADDS['bf16'])} ms; "
        f"a turn has {figures['loop']} instructions for {figures['multiply_adds']}, which issue in "
        f"{milliseconds(work / figures['multiply_adds'] * figures['loop'] / estimate.ISSUE)} ms. Scratch of {call['scratch']} bytes "
        f"is written and read: with the least, {moved} bytes, {milliseconds(moved / estimate.BANDWIDTH)} ms, so "
        f"{milliseconds(low)} ms at the least. Its loop of results has {figures['results_loop']} instructions for 8 elements of 32 "
        f"lanes: {size.elements()} / 256 turns issue in "
        f"{milliseconds(size.elements() / 256 * figures['results_loop'] / estimate.ISSUE)} ms if all of them run; with the other "
        f"loops and the bytes after them {milliseconds(high)} ms at the most.\n")


def tables(counts, registers, measured):
    launched = {launch[0] for call in counts["calls"].values() for device in ("warpgroups", "mma") for launch in call[device]}
    shown = "full causal B128 T1024 d512"
    return (f"nvcc {counts['nvcc']}.\n\n## Calls\n\n" + call_table(counts, registers, measured) +
            "\n## One line, step by step\n\n" + worked(counts, registers) +
            f"\n## Launches of {shown}, bf16, forward and backward, on sm_90a\n\n" +
            launch_table(counts["calls"], shown, "bf16", "forward+backward") +
            "\n## Main loops of the kernels that these calls launch\n\n" + kernel_table(counts["kernels"], launched))
