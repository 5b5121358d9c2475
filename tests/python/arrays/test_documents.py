# SPDX-License-Identifier: Apache-2.0
"""What documents show of the package runs, and prints what they say."""

import doctest
import importlib.util
import json
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", ["docs/python/index.md"])
def test_sessions(page):
    """Blocks of one page are one session."""
    text = (TOP / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    session = doctest.DocTestParser().get_doctest("".join(blocks), {}, page, page, 0)
    assert len(session.examples) > 20
    done = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(session)
    assert done.failed == 0


def test_the_readme_of_the_package():
    blocks = BLOCK.findall((TOP / "bindings/python/README.md").read_text(encoding="utf-8"))
    assert len(blocks) == 1
    names = {}
    exec(blocks[0], names)  # pylint: disable=exec-used
    assert names["y"].shape == names["dq"].shape == (2, 100, 8)


def program(script):
    """One of bench/python, as a module."""
    spec = importlib.util.spec_from_file_location(script, TOP / f"bench/python/{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_of_races():
    took = {way: {"aft": first, "eager": first + 1, "attention": first + 2}
            for way, first in (("forward", 1.5), ("training", 6))}
    record = {"length": 512, "channels": 256, "threads": 2, "processor": "P", "torch": "2.13.0", "date": "2026-01-01",
              "commit": "0123456789abcdef", "load": [0.5, 2.0], "races": {"full": took}}
    table = "\n".join(program("races").table(record))
    assert "(1, 512, 256), 2 threads of P, PyTorch 2.13.0, commit `0123456789ab`, 2026-01-01, load 0.5 before" in table
    assert table.endswith("| `full` | 1.5 | 2.5 times | 3.5 times | 6 | 7 times | 8 times |")


def test_pages_are_held_to_their_records():
    """A digit of a table that is not the record's is found, and so is a table that has lost its place."""
    page = program("page")
    for file in page.PAGES:
        assert page.made(file, file.read_text(encoding="utf-8")) == file.read_text(encoding="utf-8")
    file = TOP / "docs/python/torch.md"
    text = file.read_text(encoding="utf-8")
    record = "bench/results/python/torch_overhead.json"
    took = json.loads((TOP / record).read_text(encoding="utf-8"))["microseconds"]["addition"]
    assert page.made(file, text.replace(f"| addition | {took:g} |", "| addition | 0 |")) == text
    assert text.replace(f"| addition | {took:g} |", "| addition | 0 |") != text
    with pytest.raises(SystemExit, match="0 places for"):
        page.made(file, text.replace(f"<!-- {record} -->", ""))
