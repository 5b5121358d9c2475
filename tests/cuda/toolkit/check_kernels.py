#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel for one architecture and reads what ptxas says about it.

A kernel that spills registers or keeps anything in local memory fails the check, as does a warning, and so does a
tensor kernel whose machine code does without tensor cores, ldmatrix or asynchronous copies. Registers and shared memory
go to a report, which kernel_table.py holds against the committed table.
"""

import argparse
import collections
import json
import pathlib
import re
import resource
import struct
import subprocess
import sys

SOURCE = """#include <aft/aft.hpp>
AFT_CUDA_INSTANTIATE(float);
AFT_CUDA_INSTANTIATE(double);
"""
YARDSTICK = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
void f(std::map<int, std::regex>& m) { m[1] = std::regex("a"); }
"""
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
# Opcodes, the same from sm_80 to sm_100: the counts below would not come out otherwise.
HMMA, LDSM, LDGSTS = 0x23C, 0x83B, 0xFAE
# Products of a warpgroup, and changes of the number of registers; on sm_90a alone.
HGMMA, USETMAXREG = 0x9F0, 0x9C8


# HMMA of a tensor kernel: steps of depth, tiles of 16 x 8 a warp, and products of split operands.
TF32, HALF = 4 * 8 * 4, 2 * 8 * 4
GEMM, GEMM_GROUP = 4 * 4 * 8, 4
PRODUCTS = {"gemm_mma<query_rows>": GEMM, "gemm_mma<key_rows>": GEMM, "gemm_mma<query_lines>": GEMM,
            "gemm_mma<key_lines>": GEMM, "product<tf32_operand>": TF32, "product<half_operand>": HALF, "key_product<tf32_operand>": TF32, "key_product<half_operand>": HALF,
            "pair_product<tf32_operand>": TF32}
GROUP_PRODUCTS = ("gemm_wgmma<query_rows>", "gemm_wgmma<key_rows>", "gemm_wgmma<query_lines>", "gemm_wgmma<key_lines>")


def children_seconds():
    """Of the processor, so that a busy machine does not fail the check."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_nvcc(args, source, target, *flags):
    """What nvcc prints, and the seconds that it took."""
    before = children_seconds()
    command = [args.nvcc, "-std=c++20", "-O3", f"-gencode=arch=compute_{args.arch},code=sm_{args.arch}", "-cubin", *flags,
               "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"sm_{args.arch}: nvcc failed:\n{done.stderr}")
    return done.stderr, children_seconds() - before


def compile_kernels(args, source, target):
    """ptxas' report, the processor's seconds that it took, and the size of the device code."""
    text, seconds = run_nvcc(args, source, target, "-Xptxas", "-v", "-Werror", "all-warnings",
                             *[f"-I{path}" for path in args.include])
    return text, seconds, target.stat().st_size


def slowness(args):
    """How much longer than 2 s this machine takes for a file that has nothing to do with the library: on a Zen 3 that
    takes 2.0 s in a quiet minute, where all kernels for sm_100 take 45 s, and 2.8 s in one where they take 65 s."""
    source = args.work / "yardstick.cu"
    source.write_text(YARDSTICK, encoding="utf-8")
    times = [run_nvcc(args, source, args.work / "yardstick.cubin")[1] for _ in range(3)]
    return max(1.0, sorted(times)[1] / 2.0)


def time_faults(args, source, target, seconds):
    """A machine's speed changes from one minute to the next: a time beyond the limit counts once three in a row are
    beyond what the yardstick allows, taken right after each."""
    for more in (True, True, False):
        allowed = args.seconds * slowness(args) if seconds > args.seconds else args.seconds
        if seconds <= allowed:
            return []
        if more:
            seconds = compile_kernels(args, source, target)[1]
    return [f"compiling took {seconds:.0f} s, more than {allowed:.0f}"]


def short_name(mangled):
    """aft::...::fold_kernel<float> as `fold<float>`."""
    full = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout.strip()
    match = re.search(r"(\w+)_kernel(<[^(]*>)?\(", full)
    return re.sub(r"\w+::", "", match.group(1) + (match.group(2) or "")) if match else full


def parse(report):
    kernels = {}
    name = None
    for line in report.splitlines():
        if match := ENTRY.search(line):
            name = short_name(match.group(1))
            kernels[name] = {"registers": 0, "shared": 0, "stack": 0, "spills": 0}
        elif name and (match := STACK.search(line)):
            kernels[name]["stack"] = int(match.group(1))
            kernels[name]["spills"] = int(match.group(2)) + int(match.group(3))
        elif name and (match := USED.search(line)):
            kernels[name]["registers"] = int(match.group(1))
            shared = SHARED.search(line)
            kernels[name]["shared"] = int(shared.group(1)) if shared else 0
    return kernels


def instructions(image):
    """How often each opcode occurs in each kernel of a cubin: the low 12 bits of every 16 bytes of its code.

    No toolkit is sure to bring a disassembler, and an ELF file is read quickly.
    """
    table, = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    found = {}
    for name_at, _, _, _, offset, length, *_ in sections:
        start = sections[names][4] + name_at
        name = image[start:image.index(b"\0", start)].decode()
        if name.startswith(".text."):
            code = struct.iter_unpack("<QQ", image[offset:offset + length])
            found[short_name(name.removeprefix(".text."))] = collections.Counter(word & 0xFFF for word, _ in code)
    return found


def missing_instructions(found, arch):
    """What tensor kernels are for; the multiplications of a tile are unrolled, so their number is known."""
    for name, products in PRODUCTS.items():
        have = found.get(name, {})
        if have.get(HMMA, 0) != products:
            yield f"{name}: {have.get(HMMA, 0)} HMMA instructions, not {products}"
        for opcode, what in ((LDSM, "LDSM (ldmatrix)"), (LDGSTS, "LDGSTS (cp.async)")):
            if have.get(opcode, 0) == 0:
                yield f"{name}: no {what} instruction"
    for name in GROUP_PRODUCTS:
        have = found.get(name, {})
        for opcode, what, wanted in ((HGMMA, "HGMMA (wgmma)", GEMM_GROUP), (USETMAXREG, "USETMAXREG (setmaxnreg)", 2)):
            if have.get(opcode, 0) != (wanted if arch == "90a" else 0):
                yield f"{name}: {have.get(opcode, 0)} {what} instructions"


def remarks(report):
    """What ptxas says without calling it a warning: products of warpgroups that wait for each other, registers kept."""
    return [line for line in report.splitlines() if re.search(r"\(C7\d+\)|serialized|setmaxnreg", line)]


def faults(kernels):
    for name, use in kernels.items():
        if use["spills"]:
            yield f"{name}: {use['spills']} bytes of spills"
        elif use["stack"]:
            yield f"{name}: {use['stack']} bytes of local memory"


def self_test():
    report = """ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2176 bytes smem, 520 bytes cmem[0]"""
    parsed = parse(report)
    assert list(parsed.values()) == [{"registers": 32, "shared": 2176, "stack": 8, "spills": 8}], parsed
    assert len(list(faults(parsed))) == 1
    parsed = parse(report.replace("4 bytes", "0 bytes"))
    assert "local memory" in next(faults(parsed))
    assert not list(faults(parse(report.replace("8 bytes", "0 bytes").replace("4 bytes", "0 bytes"))))
    good = {name: {HMMA: products, LDSM: 1, LDGSTS: 1} for name, products in PRODUCTS.items()}
    assert not list(missing_instructions(good, "80"))
    assert len(list(missing_instructions({**good, "product<half_operand>": {HMMA: 63, LDSM: 1}}, "80"))) == 2
    assert len(list(missing_instructions(good, "90a"))) == 2 * len(GROUP_PRODUCTS)
    good.update({name: {HGMMA: GEMM_GROUP, USETMAXREG: 2} for name in GROUP_PRODUCTS})
    assert not list(missing_instructions(good, "90a"))
    assert len(remarks("ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async is serialized")) == 1
    assert not remarks(report)


def main():
    self_test()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--report", type=pathlib.Path, help="write registers and shared memory here, as JSON")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    source = args.work / "all_kernels.cu"
    source.write_text(SOURCE, encoding="utf-8")
    cubin = args.work / f"all_kernels_{args.arch}.cubin"
    text, seconds, size = compile_kernels(args, source, cubin)
    kernels = parse(text)
    if not kernels:
        sys.exit("ptxas named no kernel")
    if args.report:
        args.report.write_text(json.dumps(kernels, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name, use in sorted(kernels.items()):
        print(f"sm_{args.arch} {name}: {use['registers']} registers, {use['shared']} bytes shared")
    print(f"sm_{args.arch}: {len(kernels)} kernels, {size} bytes, compiled in {seconds:.0f} s")
    wrong = [*faults(kernels), *missing_instructions(instructions(cubin.read_bytes()), args.arch), *remarks(text),
             *time_faults(args, source, cubin, seconds)]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
