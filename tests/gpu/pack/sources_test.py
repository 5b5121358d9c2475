#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pack compiles what CMake compiles for the same two programs, with the same definitions, and has every header of them.

sources_test.py <compile_commands.json>
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
# Whether it is a test of all and how much it is optimised is each one's own; what decides what is compiled is not.
DEFINITION = re.compile(r"^(?:-Xcompiler=)?-D(\w+(?:=.*)?)$")
OWN = {"NDEBUG"}
OBJECTS = {"gemm": r"/aft_gpu_gemm\.dir/", "check": r"/(aft_gpu_check|aft_level_\w+)\.dir/"}


def definitions(arguments):
    return {m.group(1) for m in map(DEFINITION.match, arguments) if m} - OWN


def of_cmake(database, program):
    found = {}
    for entry in database:
        arguments = shlex.split(entry["command"])
        if re.search(OBJECTS[program], "/" + entry.get("output", arguments[arguments.index("-o") + 1])):
            source = pathlib.Path(entry["file"]).resolve()
            joined = re.findall(r'#include "([^"]+)"', source.read_text(encoding="utf-8")) if "Unity" in source.parts else [source]
            for part in joined:
                found[pathlib.Path(part).resolve().relative_to(TOP).as_posix()] = definitions(arguments)
    return found


def of_pack(pack, program):
    said = subprocess.run([pack / "build_programs", program], env={"AFT_GPU_DRY": "1", "PATH": "/usr/bin:/bin"}, capture_output=True,
                          text=True, check=True).stdout
    return {source: definitions(shlex.split(flags)) for source, flags in (line.split("|", 1) for line in said.splitlines())}


def headers_read(tree, program):
    """Our headers that the compilers have read for the program, as ninja has noted them; nothing of what is not built."""
    said = subprocess.run(["ninja", "-C", tree, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found, ours = set(), False
    for line in said.splitlines():
        if line and not line[0].isspace():
            ours = re.search(OBJECTS[program], "/" + line.split(":")[0]) is not None
        elif ours and line.strip():
            path = (tree / line.strip()).resolve()
            if path.is_relative_to(TOP) and not path.is_relative_to(tree):
                found.add(path.relative_to(TOP).as_posix())
    return found


def main():
    tree = pathlib.Path(sys.argv[1]).resolve().parent
    database = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        pack = pathlib.Path(folder) / "pack"
        subprocess.run([HERE / "make", pack], check=True, stdout=subprocess.DEVNULL)
        for program in OBJECTS:
            theirs, ours = of_cmake(database, program), of_pack(pack, program)
            assert theirs, f"CMake compiles nothing for aft_gpu_{program}"
            assert theirs.keys() == ours.keys(), f"{program}: in one of the two alone: {sorted(theirs.keys() ^ ours.keys())}"
            for source, wanted in theirs.items():
                assert wanted == ours[source], f"{source}: CMake defines {sorted(wanted)}, the pack {sorted(ours[source])}"
            headers = headers_read(tree, program)
            missing = [header for header in sorted(headers) if not (pack / header).is_file()]
            assert not missing, f"{program}: the pack lacks {missing}"
            print(f"aft_gpu_{program}: {len(ours)} files, {len(headers)} headers")


if __name__ == "__main__":
    main()
