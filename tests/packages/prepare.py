#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the routes start from, made once a run.

prepare.py tools <folder>                 Conan, Meson and a new CMake, from PyPI
prepare.py source <source> <folder>       the tree as a stranger gets it: what git has, in a folder of its own, with a tag
prepare.py packages <compiler> <folder>   aft built by a compiler: installed without and with the library, and packed
"""

import os
import pathlib
import shutil
import sys

from steps import HERE, Missing, Place, clean, kernel_options, once_compiled, require_headers, run

sys.path.append(str(HERE.parent / "tree"))
from check_tree import tracked, version_of  # pylint: disable=wrong-import-position


def tools(place):
    wanted = (HERE / "requirements.txt").read_text(encoding="utf-8")
    stamp = place.venv / "whole"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(place.venv, ignore_errors=True)
    try:
        run(sys.executable, "-m", "venv", place.venv)
        run(place.venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps", "-r", HERE / "requirements.txt")
    except SystemExit as failed:
        raise Missing(f"venv with Conan, Meson and CMake ({str(failed).strip().splitlines()[-1]})") from failed
    stamp.write_text(wanted, encoding="utf-8")


def source(top, place):
    clean(place.source)
    for name in tracked(top):
        target = place.source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(top / name, target)
    author = ("-c", "user.name=aft", "-c", "user.email=aft@localhost", "-c", "init.defaultBranch=main")
    run("git", *author, "init", "-q", cwd=place.source)
    run("git", *author, "add", "-A", cwd=place.source)
    run("git", *author, "commit", "-q", "-m", "the tree under test", cwd=place.source)
    run("git", *author, "tag", f"v{version_of(place.source)}", cwd=place.source)


def installed(place, compiler, name, kind, *options):
    """One folder of CMake's for all that is alike: objects are the same for every kind of library."""
    build = place.folder / f"build of {compiler}" / name
    run("cmake", "-S", place.source, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DAFT_BUILD_TESTS=OFF",
        "-DAFT_BUILD_EXAMPLES=OFF", *options, env=once_compiled(place))
    run("cmake", "--build", build, env=once_compiled(place))
    prefix = place.prefix(kind, compiler)
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", prefix)
    return build


def pack(place, compiler, kind, build):
    folder = clean(place.packed(kind, compiler))
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", folder, cwd=build)


def packages(compiler, place):
    if not shutil.which(compiler):
        raise Missing(compiler)
    build = installed(place, compiler, "headers", "headers")
    require_headers(place.source, place.prefix("headers", compiler) / "include")
    pack(place, compiler, "headers", build)
    installed(place, compiler, "library", "static", *kernel_options(), "-DBUILD_SHARED_LIBS=OFF", "-DAFT_INSTALL_CPS=OFF")
    build = installed(place, compiler, "library", "shared", *kernel_options(), "-DBUILD_SHARED_LIBS=ON", "-DAFT_INSTALL_CPS=OFF")
    pack(place, compiler, "compiled", build)
    installed(place, compiler, "library", "cps", *kernel_options(), "-DBUILD_SHARED_LIBS=ON", "-DAFT_INSTALL_CPS=ON")


def main():
    what, *arguments = sys.argv[1:]
    place = Place(arguments.pop())
    place.folder.mkdir(parents=True, exist_ok=True)
    try:
        if what == "tools" and not arguments:
            tools(place)
        elif what == "source" and len(arguments) == 1:
            source(pathlib.Path(arguments[0]), place)
        elif what == "packages" and len(arguments) == 1:
            packages(arguments[0], place)
        else:
            sys.exit(__doc__)
    except Missing as missing:
        # The routes that need it say so too, each by its name.
        print(f"not run: packages.{what}: this machine has no {missing}")
        sys.exit(1 if os.environ.get("AFT_PACKAGES_REQUIRED") else 77)


if __name__ == "__main__":
    main()
