#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_headers.py <folder>: a package that lacks a header is found, whichever header it is, and so is one too few to compile."""

import os
import shutil
import sys

from steps import Place, clean, lacking, public_headers, run


def main():
    place = Place(sys.argv[1])
    whole = place.prefix("headers", "g++")
    assert not lacking(place.source, whole / "include")
    names = public_headers(place.source)
    # Of each of the trees that come to lie in one folder.
    for name in ("aft/aft.hpp", "aft/aft.h", "aft/reference/reference.hpp", "aft/interop/eigen.hpp", "aft/cpu/backend.hpp",
                 "aft/compiled/backend.hpp"):
        assert name in names, name
    copy = clean(place.folder / "work/headers") / "a prefix"
    shutil.copytree(whole, copy, copy_function=os.link)
    (copy / "include/aft/cpu/backend.hpp").unlink()
    assert lacking(place.source, copy / "include") == ["aft/cpu/backend.hpp"]
    said = run("g++", "-std=c++20", "-fsyntax-only", f"-I{copy}/include", "-x", "c++", place.source / "packaging/consumer/calls.cpp", fails=True)
    assert "the CPU backend is not beside include" in said, said
    print(f"{len(names)} headers, each of which would be missed")


if __name__ == "__main__":
    main()
