#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_once.py <compiler> <argument>...: in front of a compiler, some files are compiled once and kept.

Every route builds the library and a program from another folder, with the same text and the same flags. An object is taken again where
the preprocessed text, the flags and the compiler are the same; paths are no part of them, which is what a general cache
of compilers would look at. Anything but the files below goes to the compiler as it is. AFT_KEPT_OBJECTS names the folder.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

# The library's kernels, and the consumer's two files, which cost more than all else of a route without them.
KEPT = ("level_f32.cpp", "level_f64.cpp", "calls.cpp", "main.cpp")
# Say where things are or what is printed, and nothing of the object's contents; -m64 is what these compilers do anyway.
PLACES = ("-I", "-isystem", "-o", "-MF", "-MT", "-MQ")
SILENT = ("-M", "-W", "-fdiagnostics", "-D", "-m64", "-pipe", "-c")


def flags_of(arguments):
    kept, left = [], list(arguments)
    while left:
        argument = left.pop(0)
        if argument in PLACES:
            left.pop(0)
        elif not argument.startswith((*PLACES, *SILENT)) and not argument.endswith(KEPT):
            kept.append(argument)
    return sorted(set(kept))


def main():
    compiler, arguments = sys.argv[1], sys.argv[2:]
    if "-c" not in arguments or not any(a.endswith(KEPT) for a in arguments):
        os.execvp(compiler, sys.argv[1:])
    target = arguments[arguments.index("-o") + 1]
    # The compiler's own dependency file comes to be as well: a build goes on as if it had compiled.
    text = target + ".text"
    preprocess = ["-E" if a == "-c" else text if a == target and arguments[i - 1] == "-o" else a for i, a in enumerate(arguments)]
    done = subprocess.run([compiler, "-P", *preprocess], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256(version + "\0".join(flags_of(arguments)).encode() + pathlib.Path(text).read_bytes()).hexdigest()
    pathlib.Path(text).unlink()
    folder = pathlib.Path(os.environ["AFT_KEPT_OBJECTS"])
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{key}.o"
    # Two builds that come at the same time compile once too.
    with (folder / f"{key}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            done = subprocess.run([compiler, *arguments], check=False)
            if done.returncode != 0:
                sys.exit(done.returncode)
            shutil.copy(target, folder / f"{key}.part")
            (folder / f"{key}.part").rename(kept)
            return
    shutil.copy(kept, target)


if __name__ == "__main__":
    main()
