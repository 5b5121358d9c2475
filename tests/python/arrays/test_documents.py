# SPDX-License-Identifier: Apache-2.0
"""What documents show of the package runs, and prints what they say."""

import doctest
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


def test_figures_are_those_of_the_record():
    page = (TOP / "docs/python/index.md").read_text(encoding="utf-8")
    record = json.loads((TOP / "bench/results/python/overhead.json").read_text(encoding="utf-8"))
    section = page.split("## What a call costs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \| ([\d.]+) \|$", section, re.M)
    shown = {call.replace("`", "").strip(): float(took) for call, took in rows}
    assert shown == record["microseconds"] and record["processor"] in section
