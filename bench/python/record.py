# SPDX-License-Identifier: Apache-2.0
"""Where, when and of what the figures of a run with PyTorch are: what its JSON says beside them."""

import contextlib
import json
import os
import pathlib
import platform
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent


def processor():
    """The name of it, as the system has it."""
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())


def git(*command):
    return subprocess.run(["git", "-C", HERE, *command], check=True, capture_output=True, text=True).stdout.strip()


def two_columns(head, first, second, figures):
    """Lines of a page: what was measured and where, and a row for each figure."""
    yield head
    yield ""
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for name, figure in figures.items():
        yield f"| {name} | {figure:g} |"


@contextlib.contextmanager
def measured(file):
    """A record to put figures into while they are measured, and written to the file, a pathlib.Path, in the end."""
    import torch

    import aft

    before = round(os.getloadavg()[0], 1)
    figures = {}
    yield figures
    record = {"processor": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(),
              "commit": git("rev-parse", "HEAD"), "changed": git("status", "--porcelain") != "",
              "date": time.strftime("%Y-%m-%d", time.gmtime()), "load": [before, round(os.getloadavg()[0], 1)],
              "aft": aft.build_info(), "torch": torch.__version__, "python": platform.python_version(), **figures}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
