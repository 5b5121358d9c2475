# SPDX-License-Identifier: Apache-2.0
"""The calls and formulas are those of the tests of aft.torch."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "torch" / "support"))
