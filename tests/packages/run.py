#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One route from an empty folder to a program that ran, and a record of it.

run.py --list                                      names all as route:kind:compiler
run.py <route> <kind> <compiler> <source> <folder> [<folder with xsimd's headers>]

Where a tool is missing it says `not run: packages.<route>...: <why>`, and the exit status is 77; with the variable
AFT_PACKAGES_REQUIRED set, that is a failure.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import managers
import projects
from routes import KINDS, ROUTES
from steps import Missing, Place, clean

TRIED = {
    "find_package": projects.find_package, "add_subdirectory": projects.add_subdirectory, "fetch_content": projects.fetch_content,
    "cps": projects.cps, "pkg_config": projects.pkg_config, "meson": projects.meson, "meson_subproject": projects.meson_subproject,
    "conan": managers.conan, "vcpkg": managers.vcpkg, "deb": managers.deb, "tarball": managers.tarball,
}


def names(cuda):
    return [f"{r.name}:{kind}:{compiler}" for r in ROUTES for kind in KINDS if kind != "cuda" or cuda for compiler in r.compilers(kind)]


def version_of(compiler):
    line = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return f"{compiler} {[w for w in line.split() if w[0].isdigit()][-1]}"


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--list"]:
        print(";".join(names("cuda" in arguments)), end="")
        return
    if len(arguments) != 6:
        sys.exit(__doc__)
    route, kind, compiler, source, folder, xsimd = arguments
    place = Place(folder)
    name = f"{route}.{kind}.{compiler}"
    record = place.folder / "records" / f"{name}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    started = time.time()
    try:
        if not shutil.which(compiler):
            raise Missing(compiler)
        said = TRIED[route](place, kind, compiler, clean(place.folder / "work" / name), pathlib.Path(xsimd))
    except Missing as missing:
        print(f"not run: packages.{name}: this machine has no {missing}")
        sys.exit(1 if os.environ.get("AFT_PACKAGES_REQUIRED") else 77)
    commit = subprocess.run(["git", "-C", source, "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"], capture_output=True,
                            text=True, check=False).stdout.strip()
    entry = {"compiler": version_of(compiler), "date": time.strftime("%Y-%m-%d", time.gmtime(started)), "commit": commit, "library": said}
    record.write_text(json.dumps({name: entry}, indent=1) + "\n", encoding="utf-8")
    print(said, f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
