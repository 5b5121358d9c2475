#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/developing/targets.md, made from what a run of the lane `targets` left.

table.py --record <folder>   takes the folder's records into bench/results/targets/targets.json, then writes the page
table.py                     writes the page
table.py --check             says whether the page is what the records give, and whether they are of these targets
"""

import pathlib
import sys

from targets import TARGETS

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench/report"))

from bars import aligned  # noqa: E402: found by the line above
from records import run  # noqa: E402

RECORDS = TOP / "bench/results/targets/targets.json"
PAGE = TOP / "docs/developing/targets.md"
UNMEASURED = "not measured"
# What the lane `core` and other pages hold; nothing here repeats their figures.
ELSEWHERE = (
    ("Linux x86-64, g++: SSE2, AVX2, AVX-512", "yes", "yes", "yes", "[measured](../benchmarks.md)", "all tests of the operators, on every change"),
    ("Linux x86-64, clang++", "yes", "yes", "yes", UNMEASURED, "the operators' tests, on every change"),
    ("NVIDIA GPUs, nvcc", "yes", "yes", "yes", "[measured](../cuda-benchmarks.md)",
     "compiled on every change where nvcc is installed; on a GPU by `scripts/gpu_check`"),
    ("Windows, MSVC or clang-cl", "not tested", "not tested", "not tested", UNMEASURED, "by nobody"),
)


def row(target, record):
    if record is None:
        return (target.what, "no record yet", "no record yet", "not tested", UNMEASURED,
                "`scripts/test --full`" if target.full else "every change")
    compiles = record["compiler"] + ("" if record["linked"] else "; not linked")
    if record["ran"]:
        by = {"native": "on the processor", "wine": "under Wine"}.get(target.runner, "under QEMU")
        runs, right = f"yes, {by}", f"yes: {record['compared']} tensors"
    else:
        runs, right = "not run", "not tested"
    return (target.what, compiles, runs, right, UNMEASURED,
            f"{'`scripts/test --full`' if target.full else 'every change'}; recorded {record['date']}, commit `{record['commit']}`")


def page(records):
    head = ("target", "compiles", "runs", "right", "speed", "tested by")
    known = [(t, records.get(t.name)) for t in TARGETS]
    return f"""# Targets

Made by `tests/targets/table.py` from `bench/results/targets/targets.json`, the records of runs that passed; a target without one has not passed yet. *Right* counts
tensors that were compared with the reference by the rule of [0006](../adr/0006-tolerances.md): the four operators forward and
backward, with options, in float, double, half and bfloat16; the programs that do so find each of them wrong when a
number of each result is moved. Emulators time nothing, so that there is no speed for what runs under one.

{aligned([head, *ELSEWHERE, *(row(t, r) for t, r in known)])}

Programs for targets that are not in the table are not known to fail; nobody tried. Instruction sets and compilers of the
first rows are in [the table of what is supported](../support.md#how-each-target-is-tested). Without OpenMP, as with the clang of most rows, a call
runs on one thread.

`scripts/test` names what it did not run for want of a tool; `scripts/deps targets` installs them on Debian, and
`scripts/deps emulated` those for the rows of `--full`.
"""


def problems(text, records):
    for t in TARGETS:
        if t.name in records and (bool(t.runner) != records[t.name]["ran"] or t.link != records[t.name]["linked"]):
            yield f"{t.name} is another target than it was when it was recorded"
    for name in sorted(set(records) - {t.name for t in TARGETS}):
        yield f"{RECORDS.name} has a record of {name}, which is no target"
    if text != page(records):
        yield f"{PAGE.name} is not what the records give: run tests/targets/table.py"


def self_test(records):
    """A record that is gone, one too many, one of something else and a stale page are found."""
    name, record = next(iter(records.items()))
    assert list(problems(page(records), {n: r for n, r in records.items() if n != name}))
    assert list(problems(page(records), {**records, "gone": record}))
    other = {**records, name: {**record, "ran": not record["ran"]}}
    assert list(problems(page(other), other))
    assert list(problems(page(records) + " ", records))


if __name__ == "__main__":
    run(RECORDS, PAGE, page, problems, self_test, "targets", __doc__)
