#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/developing/packages.md, made from what a run of the lane `packages` left.

table.py --record <folder>   takes the folder's records into bench/results/packages/packages.json, then writes the page
table.py                     writes the page
table.py --check             says whether the page is what the records give, and whether they are of these routes
"""

import pathlib
import sys

from routes import COMPILERS, KINDS, ROUTES

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench/report"))

from bars import aligned  # noqa: E402: found by the line above
from records import run  # noqa: E402

RECORDS = TOP / "bench/results/packages/packages.json"
PAGE = TOP / "docs/developing/packages.md"
HEADS = {"headers": "header-only", "compiled": "compiled", "cuda": "cuda"}
COLUMNS = [(kind, compiler) for kind in KINDS for compiler in COMPILERS if any(compiler in r.compilers(kind) for r in ROUTES)]


def cell(route, kind, compiler, records):
    if compiler not in route.compilers(kind):
        return "not tried"
    record = records.get(f"{route.name}.{kind}.{compiler}")
    return "no record yet" if record is None else f"yes, {record['date']}, `{record['commit']}`"


def page(records):
    head = ("route", *(f"{HEADS[kind]}, {compiler}" for kind, compiler in COLUMNS))
    rows = [(r.what + (f" ({r.by})" if r.by else ""), *(cell(r, kind, compiler, records) for kind, compiler in COLUMNS)) for r in ROUTES]
    versions = ", ".join(sorted({r["compiler"] for r in records.values()})) or "not recorded"
    return f"""# Packages

Made by `tests/packages/table.py` from `bench/results/packages/packages.json`, the records of runs that passed: *yes*, the day, and the commit
that was packed. A route without a record has not passed yet. Compilers: {versions}. How each is used is on the page [Install](../install.md).

{aligned([head, *rows])}

Each starts from an empty folder, with a space in its path, and ends with a program that ran: `packaging/consumer`, a library with hidden symbols that calls
an operator with two threads, and a program that counts the process's threads, catches `aft::shape_error` by its type as it leaves that library, and prints
`aft::build_info()`. A package that lacks one of the headers fails, and so does one that brought kernels of the wrong place.

*Compiled* is the library with two levels, not optimised, since it is the package that is tried; `find_package`, pkg-config and Meson take it both as a static
and as a shared library, Conan shared by g++ and static by clang++. Its kernels and the consumer's files are compiled once a compiler: every route builds them from another folder, and takes an object that has the same
preprocessed text, flags and compiler (`tests/packages/compile_once.py`). *cuda* is a program of the host's compiler that
finds the component, has all its headers and links CUDA's runtime, where CUDA is installed; kernels are what the lane `cuda` compiles.

What stands in for what cannot be had is said in `packaging/README.md`. Requests for versions, a release and the commands of the page
Install are tests of the same lane: `scripts/test packages`.
"""


def known():
    return {f"{r.name}.{kind}.{compiler}" for r in ROUTES for kind in KINDS for compiler in r.compilers(kind)}


def problems(text, records):
    for name in sorted(set(records) - known()):
        yield f"{RECORDS.name} has a record of {name}, which is no route"
    for name, record in records.items():
        if not name.endswith("." + record["compiler"].split()[0]) or not record["library"].startswith("aft "):
            yield f"{name} is recorded as something else"
    if text != page(records):
        yield f"{PAGE.name} is not what the records give: run tests/packages/table.py"


def self_test(records):
    """A record that is gone, one too many, one of something else and a stale page are found."""
    name, record = "deb.headers.g++", {"compiler": "g++ 1", "date": "", "commit": "", "library": "aft 0"}
    records = {name: record, **records}
    assert list(problems(page(records), {n: r for n, r in records.items() if n != name}))
    assert list(problems(page(records), {**records, "gone.headers.g++": record}))
    other = {**records, name: {**record, "compiler": "cc 1"}}
    assert list(problems(page(other), other))
    assert list(problems(page(records) + " ", records))


if __name__ == "__main__":
    run(RECORDS, PAGE, page, problems, self_test, "routes", __doc__)
