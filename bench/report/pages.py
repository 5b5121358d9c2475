# SPDX-License-Identifier: Apache-2.0
"""A page of the documents that is made from results: written, or with --check held against them."""

import json
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def documents(folder):
    """(path, contents) of each result of a folder below bench/results."""
    return [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted((TOP / "bench/results" / folder).glob("*.json"))]


def write_or_check(page, lines, usage):
    """`page` is its path below the project's top; `usage` is printed where the arguments are none of ours."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(usage)
    path, text = TOP / page, "\n".join(lines).rstrip() + "\n"
    if not sys.argv[1:]:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {page}")
    elif path.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{page} is not what the results give: run {pathlib.Path(sys.argv[0]).name}")
