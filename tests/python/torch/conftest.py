# SPDX-License-Identifier: Apache-2.0
"""Without PyTorch nothing here is collected, and says so."""

import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))


def _has_torch():
    # This folder is called torch as well: a package without a file is not the one that is meant.
    spec = importlib.util.find_spec("torch")
    return spec is not None and spec.origin is not None


if not _has_torch():
    collect_ignore_glob = ["*"]


def pytest_report_header():
    return None if _has_torch() else "not run: tests of aft.torch: PyTorch is not installed"
