#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_meson.py <source>: Meson builds of aft::compiled what CMake does: the same sources, levels and flags."""

import pathlib
import re
import sys


def differences(meson, levels, sources):
    """Of the text of Meson's file against those of CMake's."""
    flags = dict(re.findall(r"^set\(_aft_level_flags_(\S+) (.+)\)$", levels, re.M))
    for isa, wanted in flags.items():
        found = re.search(rf"^  '{re.escape(isa)}': \[(.*)\],$", meson, re.M)
        if not found or found[1].replace("'", "").split(", ") != wanted.split():
            yield f"level {isa}: {wanted}"
    named = re.search(r"foreach\(_aft_source (.*?)\)", sources, re.S)[1].split()
    wanted = {f"c_interface/{name}.cpp" for name in named} | set(re.findall(r"((?:dispatch|levels)/\w+\.cpp)", levels))
    found = set(re.findall(r"'((?:dispatch|levels|c_interface)/[\w/]+\.cpp)'", meson))
    yield from (f"source {name}" for name in sorted(wanted ^ found))


def main():
    top = pathlib.Path(sys.argv[1])
    texts = [(top / name).read_text(encoding="utf-8") for name in
             ("backends/compiled/meson.build", "cmake/aft_compiled_levels.cmake", "backends/compiled/c_interface/sources.cmake")]
    meson, levels, sources = texts
    # A test of the test: a flag, a level and a source that are gone.
    assert list(differences(meson.replace("-mavx512bf16", ""), levels, sources))
    assert list(differences(meson.replace("'v3':", "'v33':"), levels, sources))
    assert list(differences(meson.replace("'dispatch/choice.cpp', ", ""), levels, sources))
    found = list(differences(*texts))
    print("\n".join(found) or "Meson builds what CMake builds")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
