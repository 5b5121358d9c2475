# SPDX-License-Identifier: Apache-2.0
"""What documents show of the package runs, and prints what they say."""

import doctest
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
