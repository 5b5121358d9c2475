#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""install_page.py <folder> <compiler> <folder with xsimd's headers>: every command of docs/install.md, as it stands there.

Only places are put in: `aft` is the tree under test, and the package goes into a folder of the test. Blocks for CMake and Meson stand
in a project with one program. The component for GPUs is left to the tests that have nvcc, and vcpkg's command to those who have vcpkg.
"""

import json
import os
import pathlib
import re
import sys

from steps import HERE, KERNEL_FLAGS, LEVELS, Missing, Place, clean, once_compiled, run

MAIN = "#include <aft/aft.hpp>\n#include <cstdio>\nint main() { return std::puts(aft::build_info()) < 0; }\n"
ROUTES = 11
# One level, as quick to compile as can be.
ONE_LEVEL = f"-DAFT_BUILD_COMPILED=ON -DAFT_COMPILED_ISAS={LEVELS.split(';')[0]} -DCMAKE_BUILD_TYPE=Release '-DCMAKE_CXX_FLAGS_RELEASE={KERNEL_FLAGS}'"
PROJECTS = {"cmake": ("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES CXX)\nadd_executable(my_program main.cpp)\n"),
            "meson": ("meson.build", "project('mine', 'cpp')\n")}


class Page:
    def __init__(self, place, work, compiler, xsimd):
        self.place, self.work, self.compiler = place, work, compiler
        self.prefix = work / "prefix"
        tools = os.pathsep.join((str(place.venv / "bin"), os.environ["PATH"]))
        self.env = {"CXX": compiler, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig"), **once_compiled(place),
                    "CONAN_HOME": str(work / "conan"), "AFT_XSIMD_HEADERS": str(xsimd / "xsimd")}
        # CMake is this machine's own, not the newer one among the tools.
        self.conan_env = {**self.env, "PATH": tools}

    def conan(self):
        """A home without remotes, which has xsimd."""
        tool = self.place.tool("conan")
        run(tool, "profile", "detect", env=self.env)
        # Its test package calls an operator, and how fast is not what is tested here.
        flags = json.dumps({"CMAKE_CXX_FLAGS_RELEASE": KERNEL_FLAGS})
        (self.work / "conan/global.conf").write_text(f"tools.cmake.cmaketoolchain:extra_variables={flags}\n", encoding="utf-8")
        run(tool, "remote", "disable", "*", env=self.env)
        run(tool, "create", HERE / "substitutes/xsimd", "--version", "8.1.0", env=self.env)

    def shell(self, code):
        if code.startswith("conan"):
            self.conan()
        # What it compiles to is not what is tested here.
        code = code.replace("g++ ", f"{self.compiler} ").replace("-O3", "-O0").replace("-DAFT_BUILD_COMPILED=ON", ONE_LEVEL)
        run("bash", "-ec", code, cwd=self.work, env=self.conan_env if code.startswith("conan") else self.env)

    def project(self, number, language, code):
        mine = clean(self.work / f"project_{number}")
        (mine / "third_party").mkdir()
        (mine / "third_party/aft").symlink_to(self.place.source)
        (mine / "main.cpp").write_text(MAIN, encoding="utf-8")
        name, start = PROJECTS[language]
        (mine / name).write_text(start + code, encoding="utf-8")
        if language == "cmake":
            run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", cwd=mine, env=self.env)
            run("cmake", "--build", "build", cwd=mine, env=self.env)
        else:
            meson = self.place.tool("meson")
            run(meson, "setup", "build", cwd=mine, env=self.env)
            run(meson, "compile", "-C", "build", cwd=mine, env=self.env)
        said = run(mine / "build/my_program", cwd=mine)
        if not re.match(r"aft \d", said) or "no OpenMP" in said:
            sys.exit(f"{code}\nthe program has another aft, or lost OpenMP: {said}")


def main():
    place, compiler, xsimd = Place(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    work = clean(place.folder / "work/install_page")
    page = Page(place, work, compiler, xsimd)
    (work / "aft").symlink_to(place.source)
    (work / "main.cpp").write_text(MAIN, encoding="utf-8")
    text = (place.source / "docs/install.md").read_text(encoding="utf-8")
    routes, missing = 0, []
    for language, code in re.findall(r"^```(sh|cmake|meson)\n(.*?)^```$", text, re.M | re.S):
        code = code.replace("/opt/aft", str(page.prefix)).replace("/path/to/aft", f"file://{place.source}")
        if "COMPONENTS cuda" in code:
            continue
        routes += 1
        try:
            if language == "sh":
                page.shell(code)
            else:
                page.project(routes, language, code)
        except Missing as lack:
            missing.append(str(lack))
    if routes != ROUTES:
        sys.exit(f"docs/install.md has {routes} blocks that can be tried here, not {ROUTES}")
    print(f"{routes} blocks work as they stand in docs/install.md" + "".join(f", but for one without {m}" for m in missing))
    if missing:
        print(f"not run: packages.install_page: this machine has no {', '.join(missing)}")
        sys.exit(1 if os.environ.get("AFT_PACKAGES_REQUIRED") else 77)


if __name__ == "__main__":
    main()
