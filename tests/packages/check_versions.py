#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_versions.py <folder> <compiler>: what a request for a version accepts, as docs/install.md says it.

The package that is installed answers for itself; one of the next minor version is made of the same tree.
"""

import re
import shutil
import sys

from steps import CONSUMER, HERE, Missing, Place, clean, run

sys.path.append(str(HERE.parent / "tree"))
from check_tree import version_of  # pylint: disable=wrong-import-position

# Requests, with {} for the version's first two numbers, and whether they are served by such a version .0.
REQUESTS = (("{now}", True), ("{now}.0", True), ("{now}.0 EXACT", True), ("{now}...<{next}", True), ("{now}.0...{now}.9", True),
            ("{now}.1", False), ("{next}", False), ("{before}", False), ("1.0", False), ("{now}...{next}", False),
            ("{now}...<{after_next}", False), ("{before}...<{next}", False))
# Components, of a package without the library, and a word of the refusal.
COMPONENTS = (("COMPONENTS cpu", ""), ("OPTIONAL_COMPONENTS compiled", ""), ("COMPONENTS compiled", "installed without its compiled library"),
              ("COMPONENTS fortran", "aft has the components cpu, compiled, cuda and mpi, not fortran"))
# A request's answer is not remembered for the next one.
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(requests LANGUAGES CXX)
function(ask)
  unset(aft_DIR CACHE)
  find_package(aft ${ARGN} CONFIG QUIET)
  list(JOIN ARGN " " request)
  message(STATUS "request ${request}: ${aft_FOUND} ${aft_CONSIDERED_VERSIONS} ${aft_NOT_FOUND_MESSAGE}")
  unset(aft_NOT_FOUND_MESSAGE)
endfunction()
"""


def numbers(version):
    major, minor, _ = map(int, version.split("."))
    return {"now": f"{major}.{minor}", "next": f"{major}.{minor + 1}", "after_next": f"{major}.{minor + 2}",
            "before": f"{major}.{minor - 1}" if minor else "0.0"}


def answers(work, prefix, compiler, requests):
    """Of find_package to each request: whether it was served, and what it says beside that."""
    (work / "CMakeLists.txt").write_text(PROJECT + "".join(f"ask({request})\n" for request in requests), encoding="utf-8")
    said = run("cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
    return {request: (found == "1", versions) for request, found, versions in re.findall(r"^-- request (.*?): (\S+) ?(.*)$", said, re.M)}


def of_next_minor(place, work, now):
    """The same tree as the next minor version, installed."""
    tree = work / "next"
    shutil.copytree(place.source, tree, ignore=shutil.ignore_patterns(".git", "tests", "docs", "bench", "examples"))
    header = tree / "include/aft/core/version.hpp"
    minor = int(now.split(".")[1])
    header.write_text(header.read_text(encoding="utf-8").replace(f"AFT_VERSION_MINOR {minor}", f"AFT_VERSION_MINOR {minor + 1}"), encoding="utf-8")
    run("cmake", "-S", tree, "-B", work / "next_build", "-G", "Ninja", "-DAFT_BUILD_TESTS=OFF", "-DAFT_BUILD_EXAMPLES=OFF")
    run("cmake", "--install", work / "next_build", "--prefix", work / "next prefix")
    return work / "next prefix"


def main():
    place, compiler = Place(sys.argv[1]), sys.argv[2]
    work = clean(place.folder / "work/versions")
    known = numbers(version_of(place.source))
    requests = {request.format(**known): served for request, served in REQUESTS}
    heard = answers(work, place.prefix("headers", "g++"), compiler, [*requests, *(request for request, _ in COMPONENTS)])
    for request, served in requests.items():
        answer, considered = heard[request]
        if answer != served:
            sys.exit(f"find_package(aft {request}): {answer}, expected {served}")
        if not served and "does not serve what asks for" not in considered:
            sys.exit(f"find_package(aft {request}) does not say why: {considered}")

    for request, word in COMPONENTS:
        answer, why = heard[request]
        if answer != (not word) or word not in why:
            sys.exit(f"find_package(aft {request}): {answer}, {why}")

    # A consumer of this version's headers against the next minor version.
    following = of_next_minor(place, work, known["now"])
    said = " ".join(run("cmake", "-S", place.source / CONSUMER, "-B", work / "consumer", f"-DCMAKE_CXX_COMPILER={compiler}",
                        f"-DCMAKE_PREFIX_PATH={following}", fails=True).split())
    wanted = f"version: {known['next']}.0, which does not serve what asks for {known['now']}: before 1.0 only versions {known['next']}.x serve"
    if wanted not in said:
        sys.exit(f"CMake does not say `{wanted}`:\n{said}")
    try:
        env = {"PKG_CONFIG_PATH": str(following / "lib/pkgconfig"), "CXX": compiler}
        said = run(place.tool("meson"), "setup", work / "meson", place.source / CONSUMER, "--wrap-mode=nofallback", env=env, fails=True)
        if not re.search(r"(?i:found) '?0\.\d+\.0'? but need", said):
            sys.exit(f"Meson does not say which version it found:\n{said}")
    except Missing as missing:
        print(f"without {missing}")
    print(f"{len(REQUESTS)} requests for versions, {len(COMPONENTS)} for components, and a consumer of {known['now']} is told why {known['next']} does not serve")


if __name__ == "__main__":
    main()
