#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what calls cost on a GPU without one: instructions of the kernels' loops, launches, bytes, and estimates.

count.py --write|--check --nvcc=<nvcc> --recorder=<program> <arch>=<cubin>,...,<report.json>...
Written to docs/developing/cuda/counts.md and to tests/cuda/count/counts.json. --check fails where one has grown, and where
the files are not what they would be now; --write after the growth has been judged. Another release of nvcc makes other
code: then only launches and scratch are compared, and it says so.
"""

import argparse
import json
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/cuda/count"), str(TOP / "tests/cuda/toolkit")]

import calls as recordings  # noqa: E402: found by the line above
import comparison  # noqa: E402
import kernels  # noqa: E402
import page  # noqa: E402
from kernel_table import release_of  # noqa: E402

COUNTS = TOP / "tests/cuda/count/counts.json"
PAGE = TOP / "docs/developing/cuda/counts.md"
MEASURED = TOP / "bench/results/gpu/h200.json"


def gather(args):
    """The counts, and registers and shared memory by architecture."""
    by_name, registers = {}, {}
    for item in args.images:
        arch, _, files = item.partition("=")
        *cubins, report = files.split(",")
        registers[arch] = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
        for cubin in cubins:
            for name, figures in kernels.of_cubin(pathlib.Path(cubin).read_bytes(), arch).items():
                by_name.setdefault(name, {})[arch] = figures
    found = {}
    for device in ("warpgroups", "mma"):
        for call in recordings.recorded(args.recorder, device):
            launches = call.pop("launches")
            found.setdefault(recordings.key_of(call), call)[device] = launches
    return {"nvcc": release_of(args.nvcc), "kernels": dict(sorted(by_name.items())), "calls": found}, registers


def as_text(counts):
    """JSON with a kernel or a call a line, so that a change is one line of a comparison."""
    parts = []
    for what in ("kernels", "calls"):
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in counts[what].items())
        parts.append(f' "{what}": {{\n{lines}\n }}')
    return "{\n" + f' "nvcc": {json.dumps(counts["nvcc"])},\n' + ",\n".join(parts) + "\n}\n"


def measured():
    lines = json.loads(MEASURED.read_text(encoding="utf-8"))["timings"]
    return {(line["case"], line["type"], line["pass"]): f"{line['ms']:.3g}" for line in lines}


def with_tables(text, tables):
    head, rest = text.split(page.BEGIN)
    return head + page.BEGIN + tables + page.END + rest.split(page.END)[1]


def check(before, now, text, wanted):
    """What to say, and whether it is a failure."""
    found = comparison.changes(before, now)
    if any(line.startswith("grew") for line in found):
        return "\n".join(found) + "\ncounts grew; where that is meant, count.py --write", True
    if found:
        return "\n".join(found) + "\ncounts are other ones, or smaller: count.py --write keeps them", True
    if before["nvcc"] != now["nvcc"]:
        return f"instructions not comparable: counted with nvcc {before['nvcc']}, this is {now['nvcc']}", False
    if text != wanted:
        return f"{PAGE.name} is out of date: count.py --write", True
    return "counts as committed", False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true")
    todo.add_argument("--check", action="store_true")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--recorder", required=True, type=pathlib.Path)
    parser.add_argument("images", nargs="+")
    args = parser.parse_args()
    now, registers = gather(args)
    text = PAGE.read_text(encoding="utf-8")
    wanted = with_tables(text, page.tables(now, registers, measured()))
    if args.write:
        COUNTS.write_text(as_text(now), encoding="utf-8")
        PAGE.write_text(wanted, encoding="utf-8")
        return
    said, failed = check(json.loads(COUNTS.read_text(encoding="utf-8")), json.loads(as_text(now)), text, wanted)
    print(said)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
