#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, without warnings, and may be included twice.

Arguments: clang++, the source folder, Eigen's include folder, a folder to work in; --bites besides, instead of the check,
plants a missing include and a narrowing conversion in a copy, which have to be found.

Each header is a module of its own, in which nothing is visible but what it includes, no macro either; yet clang++ reads
every header once for all of them, where a process for each reads most of them a hundred times. What the system's headers
have is one module, since they cannot be taken apart: tests/headers/check_standard_names.py looks for those by name.
Modules that do not build convict nobody: then each header is compiled by itself, and what that says is what counts.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

WARNINGS = ("-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only")
ROOTS = ("include", "backends/cpu/include", "backends/cuda/include")
EMULATOR = "tests/support/emulator"
# They include mpi.h and nccl.h, which are not everywhere; tests/distributed compiles them where they are.
ELSEWHERE = {"aft/distributed/mpi.hpp", "aft/distributed/nccl.hpp"}
# The backend's entry includes this one itself, under nvcc.
AFTER = {"aft/cuda/kernels.cuh": "aft/cuda/backend.hpp"}


def headers(source, ending):
    """Names as they are included, and files."""
    found = {}
    for root in ROOTS:
        for file in sorted((source / root).rglob(f"*{ending}")):
            name = file.relative_to(source / root).as_posix()
            if name not in ELSEWHERE:
                found[name] = file
    return found


def compile_(command, text):
    return subprocess.run([*command, "-x", "c++", "-"], input=text, capture_output=True, text=True, check=False)


def system_module(command, files, work):
    """The module of all that these files include of others, in the order in which one file would read it."""
    names = {}
    for file in files:
        for name in re.findall(r"^ *# *include <([^>]+)>", file.read_text(encoding="utf-8"), re.M):
            # C++'s, and those of the two libraries that are always there; C's say nothing that hides a mistake.
            if "." not in name or name.startswith("xsimd/"):
                names[name] = None
    first = work / "outside.hpp"
    first.write_text("".join(f"#if __has_include(<{n}>)\n#include <{n}>\n#endif\n" for n in names), encoding="utf-8")
    said = subprocess.run([*(flag for flag in command if flag != "-fsyntax-only"), "-M", "-x", "c++", str(first)], capture_output=True, text=True, check=True).stdout
    lines = [f'  header "{first}"']
    for name in dict.fromkeys(said.replace("\\\n", " ").split()[2:]):
        # C's headers, and those without a guard, are read again wherever they are named, as they are meant to be.
        part = re.search(r"/include/c\+\+/|/xsimd/|/eigen3/", name) and not re.search(r"linux-gnu/c\+\+/", name)
        part = part and re.search(r"^#pragma once|^#ifndef (\w+)\s+#define \1\b", pathlib.Path(name).read_text(encoding="utf-8"), re.M)
        lines.append(f'  {"" if part else "textual "}header "{name}"')
    return "module outside {\n" + "\n".join(lines) + "\n  export *\n}\n"


def as_modules(command, named, helpers, work):
    """What clang++ says against any of the headers as a module; helpers are headers that they may include besides."""
    files = [*named.values(), *helpers]
    parts = "".join(f'  module m{i} {{ header "{file}" export * }}\n' for i, file in enumerate(files))
    (work / "module.modulemap").write_text(f"{system_module(command, files, work)}module aft {{\n{parts}}}\n", encoding="utf-8")
    cache = work / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    flags = ["-fmodules", "-Xclang", "-fmodules-local-submodule-visibility", f"-fmodule-map-file={work}/module.modulemap",
             f"-fmodules-cache-path={cache}"]
    done = compile_([*command, *flags], "".join(f"#include <{name}>\n" for name in named))
    shutil.rmtree(cache, ignore_errors=True)
    return done.stderr if done.returncode else ""


def alone(command, name):
    before = ["-include", AFTER[name]] if name in AFTER else []
    done = compile_([*command, *before, "-include", name, "-include", name], "")
    return f"{name}\n{done.stderr}" if done.returncode else ""


def one_by_one(command, names):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(lambda name: alone(command, name), names))


def commands(compiler, source, eigen):
    """Of the host's headers, and of the kernels on the emulated device."""
    plain = [compiler, *WARNINGS, *(f"-I{source / root}" for root in ROOTS), "-isystem", eigen]
    return plain, [*plain, "-DAFT_DEVICE_EMULATOR", f"-I{source / EMULATOR}"]


def check(compiler, source, eigen, work):
    """What is wrong with the headers."""
    plain, device = commands(compiler, source, eigen)
    host, kernels = headers(source, ".hpp"), headers(source, ".cuh")
    last = {name: kernels.pop(name) for name in AFTER}
    if len(host) < 100 or len(kernels) < 50:
        sys.exit(f"{len(host)} headers and {len(kernels)} of kernels: most are missing")
    emulator = sorted((source / EMULATOR).glob("*.hpp"))
    told = ""
    wrong = one_by_one(device, last)
    for command, named, helpers in ((plain, host, []), (device, kernels, [*host.values(), *emulator])):
        said = as_modules(command, named, helpers, work)
        if said:
            told += said
            wrong += one_by_one(command, named)
        twice = compile_(command, "".join(f"#include <{name}>\n#include <{name}>\n" for name in named))
        wrong += twice.stderr if twice.returncode else ""
    if told and not wrong:
        print(f"each header compiles alone; as modules of this clang++ they do not:\n{told[:3000]}")
    print(f"{len(host) + len(kernels) + len(last)} headers")
    return wrong


def bites(compiler, source, eigen, work):
    """A header that includes too little, and one that narrows, in a copy."""
    shutil.rmtree(work / "copy", ignore_errors=True)
    for folder in (*ROOTS, EMULATOR):
        shutil.copytree(source / folder, work / "copy" / folder)
    simple = work / "copy/include/aft/ops/simple.hpp"
    text = simple.read_text(encoding="utf-8")
    needed = "#include <aft/core/checks/prepare.hpp>\n"
    for planted in (text.replace(needed, ""), text.replace(needed, needed + "inline int narrowed(long x) { return x; }\n")):
        assert planted != text
        simple.write_text(planted, encoding="utf-8")
        said = as_modules(commands(compiler, work / "copy", eigen)[0], headers(work / "copy", ".hpp"), [], work)
        if not re.search(r"simple\.hpp:\d+:\d+: error", said):
            sys.exit(f"a mistake in simple.hpp is not seen:\n{said}")
    shutil.rmtree(work / "copy")


def main():
    arguments = sys.argv[1:]
    planted = "--bites" in arguments
    if planted:
        arguments.remove("--bites")
    if len(arguments) != 4:
        sys.exit(__doc__)
    compiler, source, eigen, work = arguments
    pathlib.Path(work).mkdir(parents=True, exist_ok=True)
    wrong = (bites if planted else check)(compiler, pathlib.Path(source), eigen, pathlib.Path(work))
    if wrong:
        sys.exit(wrong)


if __name__ == "__main__":
    main()
