#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the committed table of registers and shared memory against what ptxas reports.

kernel_table.py [--write] --nvcc=<nvcc> <table.md> <arch>=<report.json>...   Another release of nvcc allots registers
differently, so figures are compared under the release that the table names; the kernels' names under any.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

HEAD = """# CUDA kernels

Registers a thread, and bytes of shared memory a block, as ptxas reports them. No kernel spills or uses local memory: the
build checks it. `gemm_mma` and `gemm_wgmma` ask for their shared memory at launch: [cuda.md](../cuda.md). Written by
`tests/cuda/toolkit/kernel_table.py`.

"""


def release_of(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release [\d.]+, (V[\d.]+)", text).group(1)


def table(release, reports):
    names = sorted({name for report in reports.values() for name in report})
    lines = [HEAD + f"nvcc {release}.\n", "| kernel | " + " | ".join(f"{a} registers" for a in reports) + " | shared |",
             "|---|" + "---|" * (len(reports) + 1)]
    for name in names:
        cells = [str(report[name]["registers"]) if name in report else "none" for report in reports.values()]
        shared = max(report[name]["shared"] for report in reports.values() if name in report)
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {shared} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("reports", nargs="+")
    args = parser.parse_args()
    reports = {}
    for item in args.reports:
        arch, path = item.split("=", 1)
        reports[arch] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    wanted = table(release_of(args.nvcc), reports)
    if args.write:
        args.table.write_text(wanted, encoding="utf-8")
        return
    have = args.table.read_text(encoding="utf-8") if args.table.exists() else ""
    if release_of(args.nvcc) + "." not in have:
        # Names only.
        def names(text):
            return re.findall(r"^\| `([^`]+)`", text, re.M)
        if names(have) == names(wanted):
            return
    elif have == wanted:
        return
    sys.exit(f"{args.table.name} is out of date; tests/cuda/toolkit/kernel_table.py --write would give:\n{wanted}")


if __name__ == "__main__":
    main()
