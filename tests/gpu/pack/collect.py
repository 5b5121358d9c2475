#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a document as bench/results/gpu has them of the lines of JSON that a check on a GPU leaves.

collect.py <results.jsonl> <timings.json>

Kernels by themselves, which a profiler times, and PyTorch's figures are others' to add. Lines that are not whole are named.
"""

import json
import pathlib
import sys

TIMED = ("case", "type", "pass", "ms", "copy_ms", "of_copy", "cublas_ms", "of_cublas", "calls", "samples", "late")


def parsed(text):
    """What the lines say, and the numbers of those that say nothing."""
    lines, broken = [], []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            lines.append(json.loads(line))
            lines[-1]["stage"]
        except (ValueError, KeyError, TypeError):
            broken.append(number)
    return [line for line in lines if isinstance(line, dict) and "stage" in line], broken


def first(lines, member, default="not known"):
    return next((line[member] for line in lines if member in line), default)


def document(lines):
    rates = sorted(line["copy_bytes_per_second"] for line in lines if "copy_bytes_per_second" in line)
    architecture = first(lines, "compiled_for", "code=not known").rsplit("code=", 1)[-1]
    outcomes = [line for line in lines if "outcome" in line]
    return {
        "device": first(lines, "device"),
        "driver": first(lines, "driver"),
        "cuda": first(lines, "nvcc"),
        "commit": first(lines, "commit"),
        "date": first(lines, "date")[:10],
        "program": f"aft_gpu_check --timings, compiled for {architecture}",
        # Each shape's process has its own, on which its copy_ms stands.
        "copy_bytes_per_second": rates[len(rates) // 2] if rates else None,
        "torch": "not timed",
        "timings": [{name: line[name] for name in TIMED if name in line} for line in lines if "ms" in line and "case" in line],
        "stages": {line["stage"]: line["outcome"] for line in outcomes},
        "failed_tests": [f"{line['stage']}: {line['test']}" for line in lines if line.get("passed") is False],
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines, broken = parsed(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"))
    for number in broken:
        print(f"{sys.argv[1]}:{number}: not a line of results")
    pathlib.Path(sys.argv[2]).write_text(json.dumps(document(lines), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
