#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the tables of the records under bench/results/python into docs/python/torch.md, between a line that names the
record and the next line `<!-- end -->`.

page.py            writes them
page.py --check    says whether they are what the records give
"""

import importlib.util
import json
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/python/torch.md"
# The record, and the program that makes its table.
TABLES = {"bench/results/python/races.json": "bench/python/races.py",
          "bench/results/python/torch_overhead.json": "bench/python/torch_overhead.py",
          "bench/results/python/pytorch.json": "tests/python/record_torch.py"}


def table_of(record):
    spec = importlib.util.spec_from_file_location("program", TOP / TABLES[record])
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return "\n".join(program.table(json.loads((TOP / record).read_text(encoding="utf-8"))))


def made(text):
    """The page with the tables of today's records. Each has to have its place."""
    for record in TABLES:
        place = re.compile(rf"(<!-- {re.escape(record)} -->\n\n).*?(\n\n<!-- end -->)", re.S)
        table = table_of(record)
        text, count = place.subn(lambda found, table=table: found[1] + table + found[2], text)
        if count != 1:
            sys.exit(f"{PAGE.relative_to(TOP)} has {count} places for {record}")
    return text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    text = PAGE.read_text(encoding="utf-8")
    if not sys.argv[1:]:
        PAGE.write_text(made(text), encoding="utf-8")
    elif made(text) != text:
        sys.exit(f"{PAGE.relative_to(TOP)} is not what the records give: bench/python/page.py writes it")


if __name__ == "__main__":
    main()
