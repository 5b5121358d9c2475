#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a binary made of one file for an old and one for a new instruction set.

Both inline namespaces must be present, and nothing that can run from the old file's function may hold an instruction
that the old set lacks. Reached is what the machine code refers to: calls, jumps, addresses taken (also of OpenMP's
outlined loops), and the virtual functions of any table whose address is taken.
"""

import bisect
import re
import subprocess
import sys

FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
REFERENCE = re.compile(r"<([^<>]+?)(?:\+0x[0-9a-f]+)?>")
# VEX and EVEX forms, mask registers, and the scalar extensions of x86-64-v2 to v4. tzcnt is left out: compilers emit it
# for every target, since older processors read it as bsf.
NEW = re.compile(r"^(v[a-z]\w+|k(mov|or|and|xor|not|unpck|test|add|shift)\w*|mulx|rorx|sarx|shlx|shrx|andn|bextr|bls\w+|pdep|pext|"
                 r"lzcnt|popcnt|movbe)\b")
NOT_VECTOR = re.compile(r"^(verr|verw|vm[a-z]+)\b")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disassemble(binary):
    """{function: (its instructions, the symbols it refers to)}"""
    code = {}
    name = None
    for line in run("objdump", "-d", "--no-show-raw-insn", binary).splitlines():
        start = FUNCTION.match(line)
        if start:
            name = start.group(2)
            code.setdefault(name, ([], set()))
        elif name and "\t" in line:
            text = line.split("\t", 1)[1].strip()
            code[name][0].append(text)
            code[name][1].update(REFERENCE.findall(text))
    return code


def tables(binary):
    """{data symbol: functions whose addresses it holds}, from the relocations of a position-independent binary."""
    sized = []
    functions = {}
    for line in run("nm", "-S", binary).splitlines():
        parts = line.split()
        if len(parts) == 4:
            address, size, kind, name = int(parts[0], 16), int(parts[1], 16), parts[2], parts[3]
            if kind in "tTwWuiI":
                functions.setdefault(address, []).append(name)
            if kind in "dDrRvVbBu" or name.startswith("_ZTV"):
                sized.append((address, size, name))
    sized.sort()
    starts = [s[0] for s in sized]
    found = {}
    for line in run("readelf", "-rW", binary).splitlines():
        parts = line.split()
        if len(parts) >= 4 and parts[2] == "R_X86_64_RELATIVE":
            place, target = int(parts[0], 16), int(parts[3], 16)
            i = bisect.bisect_right(starts, place) - 1
            if i >= 0 and place < sized[i][0] + sized[i][1]:
                found.setdefault(sized[i][2], set()).update(functions.get(target, []))
    return found


def main():
    binary, entry, *namespaces = sys.argv[1:]
    code = disassemble(binary)
    held = tables(binary)
    start = [name for name in code if re.fullmatch(r"_ZN3mix\d+" + entry + r"(B5cxx11)?Ev", name)]
    if len(start) != 1:
        sys.exit(f"mix::{entry}() is not in {binary}")
    names = run("nm", "-C", binary)
    for namespace in namespaces:
        count = len(re.findall(rf"\baft::{namespace}::", names))
        print(f"{count} mentions of aft::{namespace} among the symbols")
        if count == 0:
            sys.exit(f"no symbol of aft::{namespace}: the files do not differ")

    reached, todo = set(), [start[0]]
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        todo += code.get(name, ((), set()))[1]
        todo += held.get(name, ())
        # The linker's symbol may lack the suffix of a cold part that a jump names, and the other way round.
    bad = {}
    for name in reached:
        hits = [i for i in code.get(name, ((), ()))[0] if NEW.match(i) and not NOT_VECTOR.match(i)]
        if hits:
            bad[name] = hits
    inside = [n for n in reached if n in code]
    print(f"{len(inside)} functions can run from mix::{entry}()")
    for name, hits in sorted(bad.items()):
        print(f"{run('c++filt', name).strip()}: {len(hits)} instructions of the newer set, as: {hits[0]}")
    # The check must be able to see: the other file's function has to be full of what is looked for.
    other = [n for n in code if n.startswith("_ZN3aft") and namespaces[-1] in n
             and any(NEW.match(i) for i in code[n][0])]
    if not other:
        sys.exit(f"no function of aft::{namespaces[-1]} holds an instruction of the newer set")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
