# SPDX-License-Identifier: Apache-2.0
"""The page about PyTorch runs as it stands, from its first line of code to its last, and the model there learns."""

import math
import pathlib
import re

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python" / "torch.md"


def test_code_of_the_page(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    loss = float(re.fullmatch(r"([\d.]+) nats a byte\n", capsys.readouterr().out).group(1))
    # Knowing nothing costs the logarithm of the alphabet; the letters' frequencies alone are 3 of the text's nats.
    assert loss < 1 < math.log(28)
    assert names["token"].shape == (2, 1, 32)
