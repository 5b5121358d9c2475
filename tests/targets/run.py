#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of a target of targets.py, runs them where something here can, and writes what came of it.

run.py --list [--full]                          names the targets
run.py <target> <source> <xsimd> <folder>       builds in the folder and writes <target>.json there

Where a tool is missing it says `not run: targets.<target>: <why>`, and the exit status is 77; with the variable
AFT_TARGETS_REQUIRED set, as the project's own CI has it, that is a failure.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from targets import TARGETS, ZIG, ZIG_WHEEL, CONFORMANCE, LEVEL

SKIPPED = 77
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


class Missing(Exception):
    """A tool that this machine lacks."""


def run(command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


def zig(folder):
    """The command of PyPI's zig, fetched into the folder once."""
    place = folder / f"ziglang-{ZIG}"
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            pins = folder / "ziglang.txt"
            pins.write_text(f"ziglang=={ZIG} --hash=sha256:{ZIG_WHEEL}\n", encoding="utf-8")
            done = run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary",
                        ":all:", "--no-compile", "--require-hashes", "--target", place, "-r", pins])
            if done.returncode != 0:
                raise Missing(f"ziglang {ZIG} of PyPI ({done.stderr.strip().splitlines()[-1]})")
            (place / "whole").touch()
    os.environ.update(ZIG_GLOBAL_CACHE_DIR=str(folder / "zig-cache"), ZIG_LOCAL_CACHE_DIR=str(folder / "zig-cache"))
    return [place / "ziglang/zig", "c++"]


def tool(*names):
    """The first that is there. Debian's wine64 alone puts nothing on the path."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise Missing(names[0])


def compiler(target, folder):
    name, *flags = target.compiler
    if name != "zig":
        return [tool(name), *flags]
    # Trapping on undefined behaviour is its default; sanitizers have trees of their own.
    return [*zig(folder), *flags, "-fno-sanitize=undefined"]


def runner(target, folder):
    """What a program's path is appended to; None where nothing here runs it."""
    if target.runner == "wine":
        os.environ.update(WINEPREFIX=str(folder / "wine" / target.name), WINEDEBUG="-all")
        (folder / "wine").mkdir(exist_ok=True)
        return [tool("wine64", "wine", "/usr/lib/wine/wine64")]
    if target.runner in ("", "native"):
        return [] if target.runner else None
    return [tool(target.runner)]


def xsimd(target, source, given, folder):
    """A folder with xsimd's headers and no others: a system's include folder would hide the target's own."""
    if target.xsimd:
        sys.path.append(str(source / "tests/xsimd"))
        import check_versions  # pylint: disable=import-outside-toplevel
        return check_versions.headers(folder / "xsimd", target.xsimd)
    place = folder / "xsimd/of-the-tree"
    shutil.copytree(given / "xsimd", place / "xsimd", dirs_exist_ok=True)
    return place


def version_of(command):
    """Compiler and version in a few words."""
    line = run([*command[:2 if command[0].name == "zig" else 1], "--version"]).stdout.splitlines()[0]
    found = re.search(r"clang version (\S+)", line)
    return f"clang {found[1]} of ziglang {ZIG}" if found else f"g++ {line.split()[-1]}"


def judge(program, ran):
    """What a program's last lines say; a run in which nothing was compared, or no mistake seen, is a failure."""
    said = ran.stdout.replace("\r", "")
    found = re.search(r"^(\d+) (comparisons|tensors), 0 wrong$", said, re.M)
    planted = re.search(r"^(\d+) comparisons with a mistake, (\d+) wrong$", said, re.M)
    bites = program != CONFORMANCE or (found and planted and planted[1] == planted[2] == found[1])
    if not found or int(found[1]) == 0 or ran.returncode != 0 or not bites:
        sys.exit(f"{program}: exit status {ran.returncode}\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
    return int(found[1])


def compiled_library(target, command, source, headers, folder):
    """aft::compiled of the target, built by CMake as a user builds it; what a program is compiled and linked with."""
    place = folder / target.name
    found = place / "xsimd.cmake"
    place.mkdir(exist_ok=True)
    # A package's file of this machine would add its folder of headers, and with it those of its C library.
    found.write_text("if(NOT TARGET xsimd)\n  add_library(xsimd INTERFACE IMPORTED)\n  set_target_properties(xsimd PROPERTIES "
                     f'INTERFACE_INCLUDE_DIRECTORIES "{headers}")\nendif()\n', encoding="utf-8")
    system, processor = target.name.split("-")[:2]
    steps = ([tool("cmake"), "-G", "Ninja", "-S", source, "-B", place / "build", f"-DCMAKE_SYSTEM_NAME={system.capitalize()}",
              f"-DCMAKE_SYSTEM_PROCESSOR={processor}", f"-DCMAKE_CXX_COMPILER={command[0]}", "-DAFT_BUILD_COMPILED=ON",
              "-DBUILD_SHARED_LIBS=OFF", "-DAFT_BUILD_TESTS=OFF", "-DAFT_BUILD_BENCH=OFF", "-DAFT_BUILD_EXAMPLES=OFF",
              "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PROJECT_INCLUDE={found}"],
             [tool("cmake"), "--build", place / "build", "--target", "aft_compiled"])
    for step in steps:
        done = run(step)
        if done.returncode != 0:
            sys.exit(f"{step[1]}\n{(done.stdout + done.stderr)[-6000:]}")
    return (["-DAFT_COMPILED=1", f"-I{source}/backends/compiled/include", f"-I{source}/backends/cpu/include"],
            [place / "build/backends/compiled/libaft_compiled.a", "-static", "-lgomp"])


def run_levels(target, command, start, source, headers, folder):
    """The programs of a target that has processors: its library chooses by them."""
    flags, libraries = compiled_library(target, command, source, headers, folder)
    result = {"compiler": version_of(command), "compiled": True, "linked": True, "ran": True, "compared": 0, "build": ""}
    for program in (LEVEL, *target.programs):
        binary = folder / f"{target.name}-{pathlib.Path(program).stem}"
        built = run([*command, "-std=c++20", "-O1", *WARNINGS, "-isystem", headers, f"-I{source}/include", f"-I{source}/tests",
                     f"-I{source}/tests/support", *flags, source / program, *libraries, "-o", binary])
        if built.returncode != 0:
            sys.exit(f"{program}\n{built.stderr[:6000]}")
        for processor, level in zip(target.processors, target.levels):
            emulator = [*start, "-cpu", processor]
            if program != LEVEL:
                result["compared"] += judge(program, run([*emulator, binary]))
                continue
            asked = run([sys.executable, source / "tests/compiled/check_isa.py", binary, *target.levels],
                        env={**os.environ, "AFT_RUN": " ".join(map(str, emulator))})
            chosen = asked.stdout.partition(" runs of ")[0]
            if asked.returncode != 0 or chosen != level:
                sys.exit(f"{processor}: {level} should run\n{asked.stdout}{asked.stderr}")
            result["build"] = asked.stdout.splitlines()[0]
    return result


def build_and_run(target, source, given, folder):
    command, start = compiler(target, folder), runner(target, folder)
    command[0] = pathlib.Path(command[0])
    headers = xsimd(target, source, given, folder)
    if target.processors:
        return run_levels(target, command, start, source, headers, folder)
    result = {"compiler": version_of(command), "compiled": True, "linked": target.link, "ran": start is not None, "compared": 0,
              "build": ""}
    for program in target.programs:
        binary = folder / f"{target.name}-{pathlib.Path(program).stem}{'.exe' if 'windows' in target.name else ''}"
        # Optimised where it runs long, that is under an emulator; elsewhere optimising would be most of the test's time.
        level = "-O1" if program == CONFORMANCE and target.runner != "native" else "-O0"
        built = run([*command, "-std=c++20", level, *WARNINGS, *(() if target.link else ("-c",)), "-isystem", headers,
                     f"-I{source}/include", f"-I{source}/tests", f"-I{source}/tests/support", source / program, *target.libraries, "-o", binary])
        if built.returncode != 0:
            sys.exit(f"{program}\n{built.stderr[:6000]}")
        if start is None:
            continue
        ran = run([*start, binary])
        result["compared"] += judge(program, ran)
        result["build"] = result["build"] or ran.stdout.splitlines()[0]
    return result


def main():
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "--list":
        print(";".join(t.name for t in TARGETS if not t.full or "--full" in arguments), end="")
        return
    if len(arguments) != 4:
        sys.exit(__doc__)
    target = next(t for t in TARGETS if t.name == arguments[0])
    source, given, folder = map(pathlib.Path, arguments[1:])
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{target.name}.json"
    record.unlink(missing_ok=True)
    started = time.time()
    commit = run(["git", "-C", source, "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]).stdout.strip()
    try:
        result = build_and_run(target, source, given, folder)
    except Missing as missing:
        print(f"not run: targets.{target.name}: this machine has no {missing}")
        sys.exit(1 if os.environ.get("AFT_TARGETS_REQUIRED") else SKIPPED)
    result.update(date=time.strftime("%Y-%m-%d", time.gmtime(started)), commit=commit)
    record.write_text(json.dumps({target.name: result}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result), f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
