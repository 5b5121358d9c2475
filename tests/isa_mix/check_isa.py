#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a binary made of one file for an old and one for a new instruction set.

check_isa.py <binary> <kinds>   kinds of instructions, as INSTRUCTIONS names them, that only the new set has

Nothing that can run from the old file's function may hold such an
instruction. Reached is what the machine code refers to: calls, jumps, addresses taken (also of OpenMP's outlined loops),
and the virtual functions of any table whose address is taken.
"""

import bisect
import re
import subprocess
import sys

FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
REFERENCE = re.compile(r"<([^<>]+?)(?:\+0x[0-9a-f]+)?>")
# tzcnt is left out: compilers emit it for every target, since older processors read it as bsf.
INSTRUCTIONS = {
    "sse3": r"(addsubp[sd]|h(add|sub)p[sd]|lddqu|movddup|movs[hl]dup|fisttp\w*)\b",
    "ssse3": r"(pabs[bwd]|palignr|ph(add|sub)s?[wd]|pmaddubsw|pmulhrsw|pshufb|psign[bwd])\b",
    "sse4_1": r"(blendv?p[sd]|pblend(vb|w)|dpp[sd]|extractps|insertps|mpsadbw|movntdqa|packusdw|pcmpeqq|pextr[bdq]|"
              r"phminposuw|pinsr[bdq]|p(max|min)(sb|sd|ud|uw)|pmov[sz]x\w+|pmul(dq|ld)|ptest|round[ps][sd])\b",
    "vex": r"(?!(verr|verw|vm[a-z]+)\b)v[a-z]\w+",
    "fma": r"vfn?m(add|sub|addsub|subadd)(132|213|231)[ps][sd]\b",
    "fma4": r"vfn?m(add|sub|addsub|subadd)[ps][sd]\b",
    "xop": r"(vpcmov|vpperm|vprot[bwdq]|vpsh[al][bwdq]|vpcomu?[bwdq]|vpmacs\w+|vfrcz[ps][sd])\b",
    "evex": r".*(%zmm\d|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]\b)",
    "bmi": r"(andn|bextr|bls(i|r|msk))\b",
    "bmi2": r"(mulx|rorx|sarx|shlx|shrx|pdep|pext|bzhi)\b",
    "lzcnt": r"lzcnt[lqw]?\b",
    "popcnt": r"popcnt[lqw]?\b",
    "movbe": r"movbe[lqw]?\b",
}


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


def function_of(name, code, binary):
    """The symbol of mix::<name>()."""
    start = [f for f in code if re.fullmatch(rf"_ZN3mix\d+{name}(B5cxx11)?Ev", f)]
    if len(start) != 1:
        sys.exit(f"mix::{name}() is not in {binary}")
    return start[0]


def main():
    binary, kinds = sys.argv[1:]
    new = re.compile("|".join(f"(?:{INSTRUCTIONS[kind]})" for kind in kinds.split(",")))
    code = disassemble(binary)
    held = tables(binary)
    low, high = (function_of(name, code, binary) for name in ("low", "high"))

    def reached_from(start):
        reached, todo = set(), [start]
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += code.get(name, ((), set()))[1]
                todo += held.get(name, ())
                # The linker's symbol may lack the suffix of a cold part that a jump names, and the other way round.
        return {name for name in reached if name in code}

    def hits_in(names):
        found = {name: [i for i in code[name][0] if new.match(i)] for name in names}
        return {name: hits for name, hits in found.items() if hits}

    inside = reached_from(low)
    bad = hits_in(inside)
    print(f"{len(inside)} functions can run from mix::low()")
    for name, hits in sorted(bad.items()):
        print(f"{run('c++filt', name).strip()}: {len(hits)} instructions of {kinds}, as: {hits[0]}")
    # The check must be able to see: the other file's functions have to be full of what is looked for.
    other = hits_in(reached_from(high))
    print(f"{sum(map(len, other.values()))} instructions of {kinds} in {len(other)} functions from mix::high()")
    if not other:
        sys.exit("the files do not differ")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
