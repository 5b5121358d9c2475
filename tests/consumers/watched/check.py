#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py <compiler> <root of aft> <folder>: a call compiled with AddressSanitizer is watched, and soon compiled.

A file whose data are float has no loops for rows of 16-bit numbers, a fifth of what aft::simple would compile.

How long that takes is held against the same file without the sanitizer, in processor time of the same minute: a bound
in seconds would tell how fast the machine is and what else it does.
"""

import os
import pathlib
import resource
import subprocess
import sys

# 20 s where the plain file takes 5.7 s; GCC 12 needed 15 times as long before its kernels were kept from inlining.
MOST_TIMES_LONGER = 3.5


def seconds_of(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    compiler, top, folder = sys.argv[1:]
    source = pathlib.Path(__file__).with_name("main.cpp")
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    program = str(pathlib.Path(folder, "watched"))
    plain = [compiler, "-std=c++20", "-O1", f"-I{top}/include", str(source), "-o", program]
    without = seconds_of(plain)
    names = subprocess.run(["nm", "-C", program], check=True, capture_output=True, text=True).stdout
    loops = [line for line in names.splitlines() if "::scan::fold_columns<" in line]
    watched = seconds_of([*plain, "-fsanitize=address"])
    print(f"plain {without:.1f} s, watched {watched:.1f} s, {len(loops)} loops over keys")
    faults = [f"for 16-bit rows: {line}" for line in loops if "half" in line or "bfloat16" in line]
    if not loops:
        faults.append("no loop over keys is called fold_columns")
    if watched > MOST_TIMES_LONGER * without:
        faults.append(f"{watched / without:.1f} times as long, {MOST_TIMES_LONGER} at most")
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    for name in ("-", "q", "k", "v", "y"):
        run = subprocess.run([program, name], capture_output=True, text=True, env=environment, check=False)
        found = "heap-buffer-overflow" in run.stderr
        if found != (name != "-") or (name == "-" and run.returncode != 0):
            faults.append(f"short array {name}: {'stopped' if found else 'not stopped'}, exit {run.returncode}\n"
                          f"{run.stderr[:2000]}")
    print("\n".join(faults) if faults else "watched: ok")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
