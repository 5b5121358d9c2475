#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the tables of the records under bench/results/python into the pages of docs/python, each between a line that names the
record and the next line `<!-- end -->`.

page.py            writes them
page.py --check    says whether they are what the records give
"""

import importlib.util
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
RESULTS = "bench/results/python"
# For each page its records, and the program that makes a record's table.
PAGES = {TOP / "docs/python/torch.md": {f"{RESULTS}/races.json": "bench/python/races.py",
                                        f"{RESULTS}/torch_overhead.json": "bench/python/torch_overhead.py",
                                        f"{RESULTS}/alternation.json": "bench/python/alternation.py",
                                        f"{RESULTS}/pytorch.json": "tests/python/record_torch.py"},
         TOP / "docs/python/index.md": {f"{RESULTS}/install_time.json": "bench/python/install_time.py",
                                        f"{RESULTS}/overhead.json": "bench/python/overhead.py",
                                        f"{RESULTS}/two_threads.json": "bench/python/two_threads.py",
                                        f"{RESULTS}/wheel.json": "tests/python/record_wheel.py"}}


def table_of(record, file):
    # Programs import what lies beside them.
    sys.path.insert(0, str((TOP / file).parent))
    spec = importlib.util.spec_from_file_location("program", TOP / file)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return "\n".join(program.table(json.loads((TOP / record).read_text(encoding="utf-8"))))


def made(page, text):
    """The page's text with the tables of today's records. Each has to have its place."""
    for record, program in PAGES[page].items():
        place = re.compile(rf"(<!-- {re.escape(record)} -->\n\n).*?(\n\n<!-- end -->)", re.S)
        table = table_of(record, program)
        text, count = place.subn(lambda found, table=table: found[1] + table + found[2], text)
        if count != 1:
            sys.exit(f"{page.relative_to(TOP)} has {count} places for {record}")
    return text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if not sys.argv[1:]:
            page.write_text(made(page, text), encoding="utf-8")
        elif made(page, text) != text:
            sys.exit(f"{page.relative_to(TOP)} is not what the records give: bench/python/page.py writes it")


if __name__ == "__main__":
    main()
