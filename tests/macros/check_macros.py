#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of the library behind the macros of culprits.hpp, and looks at the library's own macros.

What the library includes of others comes before the macros: those headers are not ours to mend, and a program that
includes them first is the one that can work. The list of them is read from the headers, so that it cannot age.
"""

import pathlib
import re
import subprocess
import sys

ROOTS = ["include", "backends/cpu/include", "backends/cuda/include"]
# The emulator of the tests stands for CUDA's headers. Asked for below all the same: a compiler may come without omp.h.
OPTIONAL = "#if __has_include(<{0}>)\n#include <{0}>\n#endif\n"
# Headers that refuse to be read without another library's.
NEEDED = {"aft/distributed/mpi.hpp": "mpi.h"}
# And one that is read by itself, behind CUDA's own headers: the emulator's stand in their place before all others.
BESIDE_CUDA = "aft/distributed/nccl.hpp"
CUDA = ("cuda_runtime_api.h", "nccl.h")
# Other libraries' switches that ours set.
SWITCHES = {"XSIMD_WITH_EMULATED"}


def headers_of(source):
    for root in ROOTS:
        for path in sorted((source / root).rglob("*")):
            if path.suffix in (".hpp", ".cuh"):
                yield path, path.relative_to(source / root).as_posix()


def main():
    compiler, source, *flags = sys.argv[1:]
    source = pathlib.Path(source)
    foreign, own, faults = set(), [], []
    for path, name in headers_of(source):
        text = path.read_text(encoding="utf-8")
        foreign.update(re.findall(r"^\s*#\s*include <((?!aft/)[^>]+)>", text, re.M))
        if name != BESIDE_CUDA:
            own.append(name)
        faults += [f"{name}: the macro {macro} may clash with a name of the user's"
                   for macro in re.findall(r"^\s*#\s*define\s+((?!AFT_)\w+)", text, re.M) if macro not in SWITCHES]
    if not foreign or not own:
        sys.exit(f"no headers below {source}")

    here = pathlib.Path(__file__).parent

    def compile_with(unit, *more):
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *flags, *(f"-I{source / root}" for root in ROOTS), *more, "-x",
                               "c++", "-"], input=unit, capture_output=True, text=True, check=False)
        return [done.stderr] if done.returncode != 0 else []

    foreign.difference_update(CUDA)
    unit = "".join(OPTIONAL.format(name) for name in sorted(foreign))
    for name in [here / "culprits.hpp", *own, here / "calls.hpp"]:
        line = f'#include "{name}"\n'
        unit += f"#if __has_include(<{NEEDED[name]}>)\n{line}#endif\n" if name in NEEDED else line
    faults += compile_with(unit, "-DAFT_DEVICE_EMULATOR", f"-I{source}/tests/support/emulator")
    there = " && ".join(f"__has_include(<{name}>)" for name in CUDA)
    read = "".join(f'#include "{name}"\n' for name in (here / "culprits.hpp", BESIDE_CUDA))
    unit = "".join(OPTIONAL.format(name) for name in sorted(foreign - {"mpi.h"}))
    faults += compile_with(f"#if {there}\n{unit}" + "".join(f"#include <{name}>\n" for name in CUDA) + f"{read}#endif\n")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
