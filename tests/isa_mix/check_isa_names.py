#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the names of instruction_set.hpp to what compilers define.

check_isa_names.py <header> <compiler>...

Levels have the names that documents and scripts use; a flag that adds instructions changes the name, unless the
compiler writes them for intrinsics alone; files for other processors differ where their instructions do.
"""

import itertools
import re
import subprocess
import sys

LEVELS = {
    "-march=x86-64": "isa_sse2",
    "-march=x86-64-v2": "isa_sse4_2",
    "-march=x86-64-v3": "isa_avx2_fma",
    "-march=x86-64-v4": "isa_avx512",
    "-march=x86-64-v4 -mavx512bf16": "isa_avx512_bf16",
    "-march=icelake-server": "isa_avx512_icl_gfni_prfchw",
    "-mavx": "isa_avx",
    "-mavx2 -mfma": "isa_avx2_only_popcnt_fma",
    "-march=x86-64 -DAFT_EMULATED_SIMD": "isa_sse2_emulated",
}
# Of no compiler's --target-help here yet, but of a newer one's.
NEWER = ("-mavxifma", "-mavxneconvert", "-mavxvnniint8", "-mavxvnniint16", "-mraoint", "-mapxf", "-mavx10.1-512",
         "-mavx10.2-512", "-mavx10.2", "-mcmpccxadd", "-msha512", "-msm3", "-msm4", "-mprefetchi", "-musermsr")
# What no compiler writes unless an intrinsic, a pragma of transactions, or an atomic of 16 bytes asks for it, none of
# which the library has; and what says something else than an instruction set.
BY_INTRINSICS = re.compile(
    r"__(AES|PCLMUL|SHA|SHA512|SM3|SM4|VAES|VPCLMULQDQ|KL|WIDEKL|RDRND|RDSEED|ADX|AVX512VP2INTERSECT|AMX_?\w+|CRC32|"
    r"FXSR|XSAVE(|C|S|OPT)|FSGSBASE|RDPID|PTWRITE|SGX|PKU|LWP|MWAITX|MWAIT|CLZERO|CLFLUSHOPT|CLWB|CLDEMOTE|WAITPKG|"
    r"SERIALIZE|ENQCMD|MOVDIRI|MOVDIR64B|RTM|HLE|TSXLDTRK|UINTR|HRESET|PCONFIG|WBNOINVD|SHSTK|INVPCID|CMPCCXADD|"
    r"USERMSR|PREFETCHI|LAHF_SAHF|CET|MMX|MMX_WITH_SSE|3dNOW_A|ABM|EVEX(256|512)|AVX10_1_512|AVX10_2_512|"
    r"GCC_HAVE_SYNC_COMPARE_AND_SWAP_16|FP_FAST_FMA\w*|SSE2?_MATH|LONG_DOUBLE_\w+|ANDROID)(__)?")
OTHERS = (
    "--target=aarch64-linux-gnu -march=armv8-a",
    "--target=aarch64-linux-gnu -march=armv8.1-a",
    "--target=aarch64-linux-gnu -march=armv8.2-a+bf16",
    "--target=aarch64-linux-gnu -march=armv8.2-a+fp16",
    "--target=aarch64-linux-gnu -mcpu=neoverse-n1",
    "--target=aarch64-linux-gnu -march=armv8-a+sve",
    "--target=aarch64-linux-gnu -march=armv8-a+sve -msve-vector-bits=256",
    "--target=aarch64-linux-gnu -march=armv8-a+sve -msve-vector-bits=512",
    "--target=aarch64-linux-gnu -march=armv9-a",
    "--target=arm-linux-gnueabihf -march=armv7-a",
    "--target=arm-linux-gnueabihf -march=armv7-a -mfpu=neon-vfpv4",
    "--target=powerpc64le-linux-gnu -mcpu=power8 -mno-vsx",
    "--target=powerpc64le-linux-gnu -mcpu=power8",
    "--target=powerpc64le-linux-gnu -mcpu=power9",
    "--target=powerpc64le-linux-gnu -mcpu=power10",
    "--target=s390x-linux-gnu -march=z13",
    "--target=s390x-linux-gnu -march=z14",
    "--target=s390x-linux-gnu -march=z14 -mzvector",
    "--target=riscv64-linux-gnu -march=rv64gc",
    "--target=riscv64-linux-gnu -march=rv64gc_zba",
    "--target=riscv64-linux-gnu -march=rv64gc -DAFT_EMULATED_SIMD",
)


def look(compiler, flags, header, faults):
    """(the name, the macros that the compiler defines), or (None, None) where it does not know a flag."""
    done = subprocess.run([compiler, *flags.split(), "-E", "-P", "-dD", "-nostdinc", "-x", "c++", "-"],
                          input=f'#include "{header}"\nAFT_HOST_ISA\n', capture_output=True, text=True, check=False)
    if done.returncode or "unused" in done.stderr:
        return None, None
    lines = done.stdout.splitlines()
    defined = {line.split()[1] for line in lines if line.startswith("#define")}
    text = " ".join(line for line in lines if not line.startswith("#")).strip()
    if not re.fullmatch(r"isa_\w+", text):
        faults.append(f"{compiler} {flags}: {text} is no name")
    return text, defined


def main():
    header, *compilers = sys.argv[1:]
    faults, listed = [], set(NEWER)
    for compiler in compilers:
        done = subprocess.run([compiler, "--target-help"], capture_output=True, text=True, check=False)
        listed.update(f for f in re.findall(r"^\s+(-m[a-z0-9.-]+)\s", done.stdout, re.M) if not f.startswith("-mno-"))
    # Another ABI, whose files do not link with these.
    flags = sorted(listed - {"-m16", "-m32", "-mx32", "-miamcu", "-msoft-float"})
    for compiler in compilers:
        for level, expected in LEVELS.items():
            if (found := look(compiler, level, header, faults)[0]) != expected:
                faults.append(f"{compiler} {level}: {found} instead of {expected}")

        name, before = look(compiler, "-march=x86-64", header, faults)
        tried = 0
        for flag in flags:
            other, after = look(compiler, f"-march=x86-64 {flag}", header, faults)
            new = {m for m in after or () if m not in before and not BY_INTRINSICS.fullmatch(m) and "AFT_" not in m}
            tried += bool(new)
            if new and other == name:
                faults.append(f"{compiler} {flag}: still {name}, with {', '.join(sorted(new))}")
        print(f"{compiler}: {tried} of {len(flags)} flags add instructions")
        if tried < 30:
            faults.append(f"{compiler}: {tried} flags are not all")

        # Only clang++ is a compiler for every processor.
        if "clang" in compiler:
            names = {target: look(compiler, target, header, faults)[0] for target in (*LEVELS, *OTHERS)}
            known = {target: name for target, name in names.items() if name}
            print("\n".join(f"{name} {target}" for target, name in known.items()))
            for (one, name), (other, same) in itertools.combinations(known.items(), 2):
                if name == same:
                    faults.append(f"{compiler}: {name} for {one} and for {other}")
            if len(known) < len(names) - 2:
                faults.append(f"{compiler} knows only {len(known)} of {len(names)} targets")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
