#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shared library exports, and what its levels could take from each other.

check_symbols.py <shared library> <object>...      a library for the CPU, and the objects that it is made of
check_symbols.py --cuda <shared library>           one with CUDA
"""

import re
import subprocess
import sys

ENTRY = re.compile(r"^aft::compiled_v\d+_\d+_\d+(_hooks_[\d_]+)?::compiled_(forward|backward)_f(32|64)\(|"
                   r"^aft::compiled_v\d+_\d+_\d+(_hooks_[\d_]+)?::compiled_(isa\(\)|isas\(\)|build_info\(\)|fill_map\()")
ENTRIES = 8
# What libc++ knows the type of an error by, outside as inside; that of devices is thrown by every such library.
ERROR = re.compile(r"typeinfo (name )?for aft::\w+_error")
THROWN = {"typeinfo for aft::device_error", "typeinfo name for aft::device_error"}
DEVICE_ENTRY = re.compile(r"^aft::compiled_v\d+_\d+_\d+::compiled_cuda_((forward|backward|attention_map)_f(32|64)|filter|reset|copy|read|serve)\(")
DEVICE_ENTRIES = 11
LEVEL = re.compile(r"\bcompiled_v\d+_\d+_\d+_(v\d|neon)|\d+compiled_v\d+_\d+_\d+_(v\d|neon)")  # plain or mangled


def symbols(path, *options):
    """(kind, name) of each symbol that the file defines."""
    text = subprocess.run(["nm", "-C", "--defined-only", *options, path], check=True, capture_output=True,
                          text=True).stdout
    return [tuple(line.split(maxsplit=2)[1:]) for line in text.splitlines() if len(line.split(maxsplit=2)) == 3]


def exported_wrongly(found):
    return [name for _, name in found
            if not ENTRY.match(name) and not re.fullmatch(r"aft_\w+", name) and not ERROR.fullmatch(name)]


def shared_between_levels(found):
    """Functions that the linker keeps one of, compiled for whichever level came first."""
    return [name for kind, name in found if kind in "Ww" and not LEVEL.search(name)]


def main():
    with_cuda = sys.argv[1] == "--cuda"
    library, *objects = sys.argv[2:] if with_cuda else sys.argv[1:]
    wrong = []
    exported = symbols(library, "-D")
    on_device = [symbol for symbol in exported if DEVICE_ENTRY.match(symbol[1])]
    if len(on_device) != (DEVICE_ENTRIES if with_cuda else 0):
        wrong.append(f"{len(on_device)} entries for a device: {on_device}")
    exported = [symbol for symbol in exported if symbol not in on_device]
    wrong += [f"exported: {name}" for name in exported_wrongly(exported)]
    wrong += [f"not exported: {name}" for name in THROWN - {name for _, name in exported}]
    entries = [name for _, name in exported if ENTRY.match(name)]
    if len(entries) != ENTRIES:
        wrong.append(f"{len(entries)} entries for C++, not {ENTRIES}: {entries}")
    levels = 0
    for path in objects:
        found = symbols(path)
        if any(kind in "Ww" and LEVEL.search(name) for kind, name in found):
            levels += 1
            wrong += [f"{path}: {name}" for name in shared_between_levels(found)]
    if levels == 0 and not with_cuda:
        wrong.append("none of the objects holds kernels")
    # Both checks have to be able to see.
    assert exported_wrongly([("W", "std::vector<int>::push_back(int const&)")]) and exported_wrongly([("T", "main")])
    assert shared_between_levels([("W", "std::pmr::monotonic_buffer_resource::do_allocate(unsigned long)")])
    print("\n".join(wrong) or f"{len(exported)} symbols exported, {levels} objects with kernels share no function")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
