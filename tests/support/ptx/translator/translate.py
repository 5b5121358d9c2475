#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PTX as nvcc writes it to C++ that runs on the emulated device: one function for each entry, which one emulated thread
runs, and a table of them.

    translate.py --out=kernels.cpp [--only=regular expression] [--faults=file.json] kernels.ptx

What it does not know is an error with the line. A file of faults is a list of objects: in the entries that match
`entry`, the instructions that match `pattern` are counted from 0 on, and that of number `match` is changed as re.sub
changes it, or dropped where nothing is left. The program chooses one while it runs (machine/launch.hpp), by its number
in the file, from 1 on.
"""

import argparse
import json
import pathlib
import re
import sys

import bodies
import source


def plant(entries, faults):
    """By entry and line: (number, changed instruction). A fault that finds nothing is an error: it would test nothing."""
    found = {}
    for number, fault in enumerate(faults, 1):
        matches = [(e, i[1]) for e in entries if re.search(fault["entry"], e.name) for i in e.statements
                   if i[0] == "do" and re.search(fault["pattern"], i[1].text)]
        if len(matches) <= fault["match"]:
            raise source.ptx_error(f"no instruction for the fault '{fault['name']}'")
        entry, i = matches[fault["match"]]
        changed = re.sub(fault["pattern"], fault["replacement"], i.text)
        if changed == i.text:
            raise source.ptx_error(f"the fault '{fault['name']}' changes nothing")
        found.setdefault(entry.name, {}).setdefault(i.line, []).append((number, changed))
    return found


def table_line(entry, name):
    parameters, _ = bodies.parameter_layout(entry)
    _, shared, dynamic = bodies.shared_layout(entry)
    places = ", ".join(f"{{{at}, {size}}}" for _, at, size in parameters)
    return (f'const kernel_entry entry_{name}{{"{entry.name}", architecture, {name}, {{{places}}}, {shared}, '
            f'{"true" if dynamic else "false"}, {entry.threads}}};')


def translate(text, only, faults):
    entries, target = source.read_module(text)
    entries = [e for e in entries if re.search(only, e.name)]
    if not entries:
        raise source.ptx_error("no entry of that name")
    planted = plant(entries, faults)
    lines = ["// Made by translate.py.", '#include "machine.hpp"', "namespace aft::ptx {", "namespace {",
             f'constexpr const char* architecture = "{target}";']
    for number, entry in enumerate(entries):
        name = f"kernel_{number}"
        lines += [f"// {entry.name}", *bodies.function_of(entry, name, planted.get(entry.name, {})), table_line(entry, name)]
    lines += [f'const fault_entry fault_{number}{{{number}, architecture, {json.dumps(fault["name"])}}};'
              for number, fault in enumerate(faults, 1)]
    return "\n".join(lines + ["}  // namespace", "}  // namespace aft::ptx", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--faults", type=pathlib.Path)
    args = parser.parse_args()
    faults = json.loads(args.faults.read_text(encoding="utf-8")) if args.faults else []
    try:
        args.out.write_text(translate(args.source.read_text(encoding="utf-8"), args.only, faults), encoding="utf-8")
    except source.ptx_error as error:
        sys.exit(f"{args.source}: {error}")


if __name__ == "__main__":
    main()
