#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py <name of the test> <folder of prepare.py> <argument of pytest>...

Runs pytest on the installed package. Where prepare.py found no tools it says `not run: <name>: <why>`, and the exit
status is 77; with the variable AFT_PYTHON_REQUIRED set, that is a failure. What AFT_PYTHON_FIRST names is looked through
before the package: another build of it, for one.
"""

import os
import pathlib
import subprocess
import sys


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    name, folder, arguments = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    if not (folder / "site/aft").is_dir():
        print(f"not run: {name}: no package was built")
        sys.exit(1 if os.environ.get("AFT_PYTHON_REQUIRED") else 77)
    # Sources are left as they are, for a checkout may be read-only.
    places = [*filter(None, [os.environ.get("AFT_PYTHON_FIRST")]), str(folder / "site")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [folder / "tools/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments]
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
