#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""install.py <source> <folder> <compiler>: every route of docs/install.md, block by block, as it stands there.

Only places are put in: `aft` is the source tree, and the package goes into a folder of the test. CMake's blocks stand in a
project with one program. The component for GPUs needs nvcc and is left to the tests that have it.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

source, folder, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
MAIN = "#include <aft/aft.hpp>\n#include <cstdio>\nint main() { return std::puts(aft::build_info()) < 0; }\n"
ROUTES = 7
# One level of the compiled library, as quick to compile as can be: what it compiles to is not what is tested here.
LEVEL = {"x86_64": "v2", "aarch64": "neon"}.get(platform.machine(), "all")
ONE_LEVEL = f"-DAFT_BUILD_COMPILED=ON -DAFT_COMPILED_ISAS={LEVEL} -DCMAKE_BUILD_TYPE=Debug"
PROJECT = "cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES CXX)\nadd_executable(my_program main.cpp)\n"


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, "CXX": compiler})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def placed(text):
    return text.replace("/opt/aft", str(folder / "prefix")).replace("/path/to/aft", str(source))


def main():
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "aft").symlink_to(source)
    (folder / "main.cpp").write_text(MAIN, encoding="utf-8")
    page = (source / "docs/install.md").read_text(encoding="utf-8")
    routes = 0
    for language, code in re.findall(r"^```(sh|cmake)\n(.*?)^```$", page, re.M | re.S):
        code = placed(code)
        if language == "sh":
            # What it compiles to is not what is tested here.
            run("bash", "-ec", code.replace("g++ ", f"{compiler} ").replace("-O3", "-O0").replace("-DAFT_BUILD_COMPILED=ON", ONE_LEVEL),
                cwd=folder)
            routes += 1
        elif "COMPONENTS cuda" not in code:
            routes += 1
            mine = folder / f"project_{routes}"
            (mine / "third_party").mkdir(parents=True)
            (mine / "third_party/aft").symlink_to(source)
            (mine / "main.cpp").write_text(MAIN, encoding="utf-8")
            (mine / "CMakeLists.txt").write_text(PROJECT + code, encoding="utf-8")
            run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}", cwd=mine)
            run("cmake", "--build", "build", cwd=mine)
            if "aft " not in run(mine / "build/my_program", cwd=mine):
                sys.exit(f"{code}\nthe program does not say which aft it has")
    if routes != ROUTES:
        sys.exit(f"docs/install.md has {routes} routes that can be tried here, not {ROUTES}")
    print(f"{routes} routes work as they stand in docs/install.md")


if __name__ == "__main__":
    main()
