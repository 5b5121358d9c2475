# SPDX-License-Identifier: Apache-2.0
"""mypy is content with the package and with a program that uses it."""

import pathlib
import subprocess
import sys

import torch
from torch.torch_version import TorchVersion

import aft.torch

PROGRAM = """
import torch
import aft
import aft.torch
from aft.torch import nn

q = torch.zeros(2, 5, 4)
y: torch.Tensor = aft.torch.full(q, q, q, aft.Factorized(q[0], q[0]), causal=True, key_lengths=[3, 5])
z: torch.Tensor = nn.AFTLocal(4, 8, aft.inclusive(2))(y)
groups = aft.torch.parameter_groups(nn.AFTConv1d(4, 2, 3), 1e-3)
stream: aft.Stream = nn.AFTSimple(4, causal=True).stream(2)
"""


def test_strict(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    package = pathlib.Path(aft.torch.__file__).resolve().parent
    # Stubs of older releases say less of PyTorch than the package is typed against; what a program sees of the package
    # is the same with all of them.
    files = [str(package), str(program)] if TorchVersion(torch.__version__) >= (2, 13) else [str(program)]
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent",
                           "--cache-dir", str(tmp_path), *files], capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
