#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py <file> <program>: the program ends well and prints what the file holds."""

import difflib
import pathlib
import subprocess
import sys

expected = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
run = subprocess.run(sys.argv[2:], capture_output=True, text=True, check=False)
differences = list(difflib.unified_diff(expected, run.stdout.splitlines(), sys.argv[1], "printed", lineterm=""))
print("\n".join(differences) or f"{len(expected)} lines, as they stand there", run.stderr)
sys.exit(1 if differences or run.returncode != 0 else 0)
