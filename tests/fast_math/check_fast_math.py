#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flags of fast mathematics are refused by the library's own error, or change no bit of a result.

Arguments: the compiler, the source, the folder of the headers, a folder to work in, [--all]. With --all every flag with
every call, in both orders of includes (minutes); else one flag of each kind, with the calls that sums hurt first.
"""

import itertools
import pathlib
import subprocess
import sys

REORDER = "-fassociative-math -fno-signed-zeros -fno-trapping-math"
# Of each compiler: flags, and whether the library has to refuse them whatever the order of includes.
FLAGS = {
    "clang": [("-funsafe-math-optimizations", False), ("-fno-honor-nans", False), ("-fno-honor-infinities", False),
              (REORDER, False), ("-fno-signed-zeros", False), ("-freciprocal-math", False), ("-fapprox-func", False),
              ("-ffast-math", True), ("-Ofast", True), ("-ffinite-math-only", True), ("-ffp-model=fast", None),
              ("-ffp-contract=fast", False), ("-fno-math-errno", False), ("-frounding-math", False),
              ("-fdenormal-fp-math=preserve-sign", False)],
    "g++": [("-funsafe-math-optimizations", True), ("-freciprocal-math -fno-signed-zeros", False),
            (REORDER, True), ("-freciprocal-math", False), ("-fno-signed-zeros", False), ("-ffast-math", True),
            ("-Ofast", True), ("-ffinite-math-only", True), ("-fsingle-precision-constant", False),
            ("-fno-math-errno -fno-trapping-math", False), ("-frounding-math", False), ("-fcx-limited-range", False),
            ("-fexcess-precision=fast", False)],
}
FIRST = {"clang": 2, "g++": 2}  # those that the short run tries
REFUSALS = ("aft does not work under -ffast-math", "aft does not work with vector intrinsics")


def build(compiler, source, headers, program, flags):
    done = subprocess.run([compiler, "-std=c++20", f"-I{headers}", "-w", *flags, source, "-o", program],
                          capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def bits(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def main():
    compiler, source, headers, work, *rest = sys.argv[1:]
    everything = "--all" in rest
    kind = "clang" if "clang" in pathlib.Path(compiler).name else "g++"
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    program = work / "calls"
    level = ["-O2"] + (["-DALL_CALLS"] if everything else []) + [flag for flag in rest if flag != "--all"]
    built, log = build(compiler, source, headers, program, level)
    if not built:
        sys.exit(f"does not compile without any flag:\n{log}")
    expected = bits(program)
    wrong = []
    tried = FLAGS[kind] if everything else FLAGS[kind][:FIRST[kind]]
    for (flags, refused), order in itertools.product(tried, ([], ["-DINTRINSICS_FIRST"])):
        if refused and order:
            continue
        name = f"{flags} {' '.join(order)}".strip()
        built, log = build(compiler, source, headers, program, [*level, *flags.split(), *order])
        if not built:
            own = any(text in log for text in REFUSALS)
            print(f"{name}: {'refused' if own else 'does not compile'}")
            if not own:
                wrong.append(f"{name} does not compile:\n{log[:2000]}")
            continue
        same = bits(program) == expected
        print(f"{name}: {'the same bits' if same else 'OTHER BITS'}")
        if refused or not same:
            wrong.append(f"{name} is neither refused nor harmless")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
