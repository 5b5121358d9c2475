#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds a shared library with hidden symbols and a program, and has the program catch what the library throws.

Arguments: the compiler, the folder of the sources, a folder to work in, and further flags of both.
"""

import pathlib
import subprocess
import sys


def main():
    compiler, source, work, *flags = sys.argv[1:]
    source, work = pathlib.Path(source), pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    library = work / "liblibrary.so"
    hidden = ["-fPIC", "-shared", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    subprocess.run([compiler, *flags, *hidden, source / "library.cpp", "-o", library], check=True)
    # Hidden in the program too: both sides have type information of their own.
    subprocess.run([compiler, *flags, "-fvisibility=hidden", source / "main.cpp", f"-L{work}", "-llibrary",
                    f"-Wl,-rpath,{work}", "-o", work / "program"], check=True)
    sys.exit(subprocess.run([work / "program"], check=False).returncode)


if __name__ == "__main__":
    main()
