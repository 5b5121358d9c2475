#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a wheel of scripts/wheel is, and which tests passed on it as it was installed.

record_wheel.py <wheel> <record.json> <closing line of the arrays' tests> <closing line of the page about PyTorch's>
    writes the record
bench/python/page.py puts its table into docs/python/index.md
"""

import json
import pathlib
import platform
import sys
import time

from record_torch import counts, said_by

HERE = pathlib.Path(__file__).resolve().parent


def table(record):
    """Lines of the page."""
    yield "| wheel | MB | tests of arrays | tests with PyTorch | Python | recorded |"
    yield "|---|---|---|---|---|---|"
    yield (f"| `{record['wheel']}` | {record['megabytes']} | {record['arrays']} passed | {record['torch']} passed | {record['python']} | "
           f"{record['date']}, commit `{record['commit'][:12]}` |")


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    wheel, file = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    record = {"wheel": wheel.name, "megabytes": round(wheel.stat().st_size / 1e6, 1), "arrays": counts(sys.argv[3])[0],
              "torch": counts(sys.argv[4])[0], "python": platform.python_version(),
              "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": said_by("git", "-C", HERE, "rev-parse", "HEAD")}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
