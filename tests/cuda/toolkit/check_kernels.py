#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel for one architecture, those of each arithmetic type in a file, as aft_add_cuda_instantiations
does, and reads what ptxas says about it.

A kernel that spills registers or keeps anything in local memory fails the check, as does a warning, and so does a
tensor kernel whose machine code does without tensor cores, ldmatrix or asynchronous copies. Registers and shared memory
go to a report, which kernel_table.py holds against the committed table. Either file compiles in a minute, and one that
includes the library and asks for no kernels has only those that move slots and elements.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys

INCLUDED = "#include <aft/aft.hpp>\n"
TYPES = ("float", "double")
# They are of no type, so any file may have to answer for them; ptxas takes a sixth of a second for all.
UNASKED = re.compile(r"copy_elements<\d>|reset_slots<float>|copy_slots<float>")
YARDSTICK = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
void f(std::map<int, std::regex>& m) { m[1] = std::regex("a"); }
"""
# On the machine that the limit was set on, a Zen 3 in a quiet minute.
YARDSTICK_SECONDS = 2.0
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


def start_nvcc(args, source, target, *flags):
    """With a file for what it prints: nobody reads a pipe while other programs run."""
    command = [args.nvcc, "-std=c++20", "-O3", f"-gencode=arch=compute_{args.arch},code=sm_{args.arch}", "-cubin", *flags,
               "-o", str(target), str(source)]
    with target.with_suffix(".log").open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def end_nvcc(args, process, target):
    """What it printed, and the seconds of the processor that it and its children took: a busy machine does not fail."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = target.with_suffix(".log").read_text(encoding="utf-8")
    if process.returncode != 0:
        sys.exit(f"sm_{args.arch}: nvcc failed:\n{text}")
    return text, used.ru_utime + used.ru_stime


def start_kernels(args, source, target):
    return start_nvcc(args, source, target, "-Xptxas", "-v", "-Werror", "all-warnings",
                      *[f"-I{path}" for path in args.include])


def compile_yardstick(args):
    """The seconds for a file that has nothing to do with the library."""
    source, target = args.work / "yardstick.cu", args.work / "yardstick.cubin"
    source.write_text(YARDSTICK, encoding="utf-8")
    return end_nvcc(args, start_nvcc(args, source, target), target)[1]


def time_faults(args, source, target, seconds):
    """A time beyond the limit counts once the kernels, compiled again with the yardstick beside them from their first
    second to their last, took that long too by the yardstick's time. Before it or after it the machine is another one:
    clocks change within a minute, and the other thread of a core is busy or not."""
    if seconds <= args.seconds:
        return []
    kernels = start_kernels(args, source, target)
    beside = []
    try:
        while os.waitid(os.P_PID, kernels.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            beside.append(compile_yardstick(args))
    except BaseException:
        kernels.kill()
        raise
    again = end_nvcc(args, kernels, target)[1]
    slowness = max(1.0, statistics.mean(beside) / YARDSTICK_SECONDS)
    print(f"again: {again:.0f} s, beside {len(beside)} yardsticks of {statistics.mean(beside):.2f} s on average")
    if again <= args.seconds * slowness:
        return []
    return [f"compiling took {again:.0f} s, more than {args.seconds * slowness:.0f}"]


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


def kernels_of_type(args, name):
    """What ptxas says of the kernels for one type, their instructions, and what is wrong with them."""
    source, cubin = (args.work / f"kernels_{name}_{args.arch}{suffix}" for suffix in (".cu", ".cubin"))
    source.write_text(f"{INCLUDED}AFT_CUDA_INSTANTIATE({name});\n", encoding="utf-8")
    text, seconds = end_nvcc(args, start_kernels(args, source, cubin), cubin)
    image = cubin.read_bytes()
    kernels = parse(text)
    if not kernels:
        sys.exit(f"ptxas named no kernel for {name}")
    print(f"sm_{args.arch}, {name}: {len(kernels)} kernels, {len(image)} bytes, compiled in {seconds:.0f} s")
    return kernels, instructions(image), [*faults(kernels), *remarks(text), *time_faults(args, source, cubin, seconds)]


def unasked_kernels(args):
    source, cubin = (args.work / f"included_{args.arch}{suffix}" for suffix in (".cu", ".cubin"))
    source.write_text(INCLUDED, encoding="utf-8")
    text, _ = end_nvcc(args, start_kernels(args, source, cubin), cubin)
    return [f"{name}: compiled in a file that asks for no kernels" for name in parse(text) if not UNASKED.fullmatch(name)]


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
    assert UNASKED.fullmatch("copy_elements<4>") and not UNASKED.fullmatch("fold<float>")


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
    kernels, found, wrong = {}, {}, unasked_kernels(args)
    for name in TYPES:
        used, executed, faults_of_type = kernels_of_type(args, name)
        kernels |= used
        found |= executed
        wrong += faults_of_type
    if args.report:
        args.report.write_text(json.dumps(kernels, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name, use in sorted(kernels.items()):
        print(f"sm_{args.arch} {name}: {use['registers']} registers, {use['shared']} bytes shared")
    wrong += missing_instructions(found, args.arch)
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
