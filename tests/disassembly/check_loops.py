#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels and reads in their machine code whether sums stay in registers.

check_loops.py <compiler> <folder of the checkout> <folder to work in> [--full] [--list] [--planted]

Of each loop with multiply-adds the accesses to the stack are counted whose other operand is a vector. A tile also has
to store nothing: accumulators that a function gets by reference need not lie where the stack pointer says. Where the
accumulators escape into a call its loop is missing here, which is an error too. With --full all instruction sets,
else SSE2 and the widest; --list prints what was found; --planted tries kernels that have to be reported.
"""

import argparse
import pathlib
import re
import subprocess
import sys

from loops import ARCHITECTURES, loops

SOURCE = pathlib.Path(__file__).parent


class Level:
    """An instruction set: flags, and what follows from the number of registers."""

    def __init__(self, arch, flags, registers, tile_rows, quick=True):
        self.arch, self.flags, self.registers, self.tile_rows, self.quick = arch, flags, registers, tile_rows, quick


LEVELS = {
    "sse2": Level("x86", ["-march=x86-64"], 16, 6),
    "avx2": Level("x86", ["-march=x86-64-v3"], 16, 6, quick=False),
    "avx512": Level("x86", ["-march=x86-64-v4"], 32, 14),
    # By a cross compiler, which knows no other level; asked for by name.
    "neon": Level("aarch64", [], 32, 12, quick=False),
}


class Kernel:
    """A loop that has to be found: the function it is in once everything is inlined, its multiply-adds at least, and
    the accesses to the stack that it may have, by level; else 0."""

    def __init__(self, function, least, allowed=None, stores=True):
        self.function, self.least, self.allowed, self.stores = re.compile(function), least, allowed or {}, stores


def tile(level):
    """Multiply-adds of a step of the register tile."""
    return 2 * level.tile_rows


def stencil(weights):
    """Two taps of as many outputs as there are registers for, see stencil_outputs; a third of them at the least, since
    compilers that jump past some of a tile's outputs cut its loop into several."""
    return lambda level: (level.registers - 2 - 2 * weights) * 2 // 3


# What has no room. With 16 registers the polynomials of four rows at a time have more values than registers: e^x of
# the fold takes 3 constants and 4 values for each of 4 keys, whatever their order. The causal loop backward holds of
# each of 4 rows g, its weight and both sums, and of its column 20 more: 36 vectors at its widest, of 32. A panel's
# weights are 16 rows, two registers of a table and five constants. Of a packed key those of the polynomial, the sizes that
# are measured and the unit are one more than 16, and the product with the unit reads it from the stack.
# A stencil's tile fills all 16 registers with sums, inputs and weights; without a fused multiply-add each product takes
# one more, which g++ gets by reading inputs twice and clang by keeping a sum elsewhere.
STENCIL = {"sse2": 6}
FOLD = {"sse2": 35, "avx2": 25}
UNIFORM = {"sse2": 20, "avx2": 30, "avx512": 8}
CAUSAL = {"sse2": 130, "avx2": 140, "avx512": 56}
ENGINES = {
    "gemm": [Kernel(r"gemm_(tile|rows|panel)<float", tile, stores=False),
             Kernel(r"gemm_(tile|rows|panel)<double", tile, stores=False)],
    "stencil": [Kernel(r"stencil_tile<float, \d+l?, 1l?>", stencil(1), STENCIL, stores=False),
                Kernel(r"stencil_tile<float, \d+l?, 2l?>", stencil(2), STENCIL, stores=False)],
    "window": [Kernel(r"multiply_tile", lambda level: 16 if level.registers == 16 else 32, stores=False)],
    "scan": [Kernel(r"fold_columns<float, .*\)0, .*\)0, 4l?, float>", lambda _: 20, FOLD),
             Kernel(r"fold_columns<float, .*\)1, .*\)0, 4l?, float>", lambda _: 40, FOLD),
             Kernel(r"sum_uniform_rows<float, 4l?, float>", lambda _: 36, UNIFORM),
             Kernel(r"add_causal_rows<float, true, float>", lambda _: 66, CAUSAL),
             Kernel(r"add_causal_rows<float, false, float>", lambda _: 60, CAUSAL)],
    "pack": [Kernel(r"pack_weight_panel<float", lambda level: 10, {"sse2": 6, "avx2": 16, "avx512": 42}),
             Kernel(r"form_keys<float", lambda _: 4, {"sse2": 1, "avx2": 6})],
}
PLANTED = [Kernel(rf"planted::{name}\(", lambda _: 2, stores=False) for name in ("called", "indexed", "stored")]


def compile_engine(engine, options, level, top, work):
    target = work / f"{engine}.o"
    subprocess.run([options.compiler, "-std=c++20", "-O3", "-DNDEBUG", *level.flags, *options.compiler_flag,
                    f"-I{top}/include", f"-I{top}/backends/cpu/include", "-c", SOURCE / f"{engine}.cpp", "-o", target],
                   check=True)
    return target


def judge(engine, kernel, level_name, found):
    """What is wrong with the loops of a kernel, in words."""
    least, allowed = kernel.least(LEVELS[level_name]), kernel.allowed.get(level_name, 0)
    hot = [loop for loop in found if kernel.function.search(loop.function) and loop.multiplies >= least]
    if not hot:
        yield f"{engine}: no loop of {least} multiply-adds in {kernel.function.pattern}"
    for loop in hot:
        what = f"{engine}: {loop.multiplies} multiply-adds at {loop.start:x} of {loop.function}"
        if len(loop.spills) > allowed:
            yield f"{what}: {len(loop.spills)} accesses to the stack, not {allowed}, as\n    " + "\n    ".join(loop.spills[:3])
        if loop.stores and not kernel.stores:
            yield f"{what}: stores {loop.stores} vectors"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("compiler")
    parser.add_argument("top", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--level", choices=LEVELS, action="append")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--compiler-flag", action="append", default=[])
    options = parser.parse_args()
    wrong = 0
    for name, level in LEVELS.items():
        if name not in (options.level or [n for n in LEVELS if LEVELS[n].arch == "x86" and (options.full or LEVELS[n].quick)]):
            continue
        work = options.work / name
        work.mkdir(parents=True, exist_ok=True)
        if options.planted:
            found = list(loops(options.objdump, compile_engine("planted", options, level, options.top, work),
                               ARCHITECTURES[level.arch]))
            for kernel in PLANTED:
                texts = list(judge("planted", kernel, name, found))
                print(*(f"{name} {text}" for text in texts), sep="\n")
                if not texts:
                    print(f"{name} {kernel.function.pattern} is not reported")
                    wrong += 1
            continue
        for engine, kernels in ENGINES.items():
            if options.engine and engine not in options.engine:
                continue
            path = compile_engine(engine, options, level, options.top, work)
            found = list(loops(options.objdump, path, ARCHITECTURES[level.arch]))
            if options.list:
                for loop in found:
                    print(f"{name} {engine}: {loop.multiplies} multiply-adds, {len(loop.spills)} accesses to the stack, "
                          f"{loop.stores} stores, {loop.length} instructions: {loop.function}")
            for kernel in kernels:
                for text in judge(engine, kernel, name, found):
                    print(f"{name} {text}")
                    wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
