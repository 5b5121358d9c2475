#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/developing/compilers.md from the results under bench/results/compilers, which scripts/turns writes.

compilers.py                                          writes it
compilers.py --check                                  says whether it is what the results give
compilers.py --record ROWS FILE SIDE SIDE LOAD        makes a result of the rows that bench/turns wrote; a side is
                                                      "commit|compiler|flags"
"""

import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from bars import aligned
from pages import documents, write_or_check
from results import plain

ENOUGH = 0.97


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        fields = dict(line.split(":", 1) for line in info.read().split("\n\n")[0].splitlines())
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{named['model name']}, family {named['cpu family']} model {named['model']}"


def side(text):
    commit, compiler, flags = text.split("|")
    version = subprocess.run([*compiler.split()[:1], "--version"], capture_output=True, text=True, check=True).stdout
    return {"commit": commit, "compiler": version.splitlines()[0], "flags": flags}


def record(rows, target, before, now, load):
    document = {"processor": processor(), "processors": os.cpu_count(), "load": float(load),
                "date": datetime.date.today().isoformat(), "threads": 1, "before": side(before), "now": side(now),
                "calls": json.loads(pathlib.Path(rows).read_text(encoding="utf-8"))}
    text = json.dumps(document, indent=1)
    # A call a line.
    head, _, _ = text.partition('"calls": [')
    calls = ",\n  ".join(json.dumps(call) for call in document["calls"])
    pathlib.Path(target).write_text(f'{head}"calls": [\n  {calls}\n ]\n}}\n', encoding="utf-8")


def short(compiler):
    """g++ 12.2.0, clang 14.0.6."""
    words = compiler.replace("clang version", "clang").split()
    start = next(i for i, word in enumerate(words) if word.startswith(("g++", "clang")))
    return f"{words[start].split('-')[0]} {[w for w in words[start + 1:] if w[0].isdigit()][-1]}"


def table(results):
    names = [call["call"] for call in results[0][1]["calls"]]
    rows = [("call", *[f"`{path.stem}`" for path, _ in results])]
    for name in names:
        ratios = [{c["call"]: c for c in d["calls"]}.get(name) for _, d in results]
        rows.append((name, *["not measured" if c is None else cell(c) for c in ratios]))
    return aligned(rows)


def cell(call):
    low, high = call["quartiles"]
    text = f"{call['ratio']:.2f} [{low:.2f}, {high:.2f}]"
    return f"**{text}**" if call["ratio"] < ENOUGH else text


def page(results):
    yield "# Compilers beside each other\n"
    yield (f"Made by `bench/report/compilers.py` from `bench/results/compilers/`, which `scripts/turns` writes. Two "
           "libraries are called in turns in one process and on the same memory; the figure is the median of the pairs' ratios, "
           "g++'s time over the other's, with its quartiles: 1 is as fast, above 1 faster. `compiled` is a file for any x86-64 that "
           "calls `aft::compiled`, beside one by the same g++ for the processor at hand with the kernels in it. One thread, by the time that the processor "
           f"spent on it. Below {ENOUGH} is printed bold. Whether sums stay in registers is read from the machine code by "
           "`tests/disassembly`.\n")
    for path, d in results:
        ratios = [c["ratio"] for c in d["calls"]]
        slow = sum(r < ENOUGH for r in ratios)
        one_commit = d["before"]["commit"] == d["now"]["commit"]
        commits = (f"commit `{d['now']['commit'][:12]}`" if one_commit else
                   f"commit `{d['before']['commit'][:12]}` against `{d['now']['commit'][:12]}`")
        yield (f"- `{path.name}`: {short(d['before']['compiler'])} against {short(d['now']['compiler'])}, `{d['now']['flags']}`, "
               f"{commits}, {d['date']}, {d['processor']}, {d['processors']} virtual processors with a load of "
               f"{plain(d['load'])}: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}, {slow} of {len(ratios)} calls "
               f"below {ENOUGH}.")
    yield ""
    yield "Shapes are batch x positions x channels, in float unless another type is named.\n"
    yield table(results)


def main():
    if len(sys.argv) == 7 and sys.argv[1] == "--record":
        record(*sys.argv[2:])
        return
    write_or_check("docs/developing/compilers.md", page(documents("compilers")), __doc__)


if __name__ == "__main__":
    main()
