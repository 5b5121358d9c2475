#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which releases of PyTorch the tests of aft.torch passed with, and when.

record_torch.py <python> <folder that holds the package aft> <records.json>
    runs them, and puts what passed into the records
record_torch.py --table <records.json>
    prints the table that bench/python/page.py puts into docs/python/torch.md
"""

import json
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def said_by(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout.strip()


def counts(summary):
    """(passed, left out) of pytest's closing line; failures end the program."""
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", summary)}
    if set(found) - {"passed", "skipped"} or not found.get("passed"):
        sys.exit(f"not recorded: {summary}")
    return found["passed"], found.get("skipped", 0)


def table(records):
    """Lines of the page, the oldest release first."""
    yield "| PyTorch | tests that passed | left out | Python | recorded |"
    yield "|---|---|---|---|---|"
    for version in sorted(records, key=lambda text: [int(part) for part in text.split(".")]):
        r = records[version]
        yield f"| {version} | {r['passed']} | {r['left_out']} | {r['python']} | {r['date']}, commit `{r['commit'][:12]}` |"


def main():
    if sys.argv[1:2] == ["--table"] and len(sys.argv) == 3:
        print("\n".join(table(json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")))))
        return
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    python, package, file = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    # Before the tests, which take so long that somebody may commit meanwhile.
    commit = said_by("git", "-C", HERE, "rev-parse", "HEAD")
    done = subprocess.run(["sh", HERE / "torch/run.sh", python, package], capture_output=True, text=True, check=False)
    passed, left_out = counts((done.stdout.strip().splitlines() or [""])[-1])
    version, own = said_by(python, "-c", "import platform, torch; print(torch.__version__, platform.python_version())").split()
    records = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    records[version.split("+")[0]] = {"passed": passed, "left_out": left_out, "python": own,
                                      "date": time.strftime("%Y-%m-%d", time.gmtime()),
                                      "commit": commit}
    file.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
