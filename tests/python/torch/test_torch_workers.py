# SPDX-License-Identifier: Apache-2.0
"""Other processes: a worker that is forked from one whose threads have computed."""

import subprocess
import sys

PROGRAM = """
import torch, aft.torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        x = torch.full((2, 400, 16), float(i))
        return aft.torch.simple(x, x, x)

if __name__ == "__main__":
    torch.set_num_threads(2)
    x = torch.randn(8, 400, 64)
    aft.torch.simple(x, x, x)       # threads are there now, and a fork does not take them along
    loader = torch.utils.data.DataLoader(Rows(), num_workers=1, multiprocessing_context="fork", timeout=60)
    rows = [row for row in loader]
    assert len(rows) == 4 and rows[3].shape == (1, 2, 400, 16)
    assert all(torch.equal(row[0], Rows()[i]) for i, row in enumerate(rows))
    print("done")
"""


def test_a_forked_worker_does_not_hang():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
