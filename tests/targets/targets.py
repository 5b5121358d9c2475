# SPDX-License-Identifier: Apache-2.0
"""The targets beside the machine's own: what builds for each, and what runs it.

A compiler is a command, or `zig` with its target: one package of PyPI that brings clang and the libraries of other systems.
"""

import dataclasses

# The clang that it holds is newer than any of Debian's. Its archive's digest is pip's to check.
ZIG = "0.17.1"
ZIG_WHEEL = "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54"

SMOKE = "tests/xsimd/smoke.cpp"
CONFORMANCE = "tests/targets/conformance.cpp"
LEVEL = "tests/compiled/level.cpp"
WINDOWS = "tests/targets/windows.cpp"


@dataclasses.dataclass(frozen=True)
class Target:
    name: str
    what: str
    compiler: tuple[str, ...]
    programs: tuple[str, ...]
    runner: str = ""  # "": its programs are linked, not run; "native": this machine runs them
    xsimd: str = ""  # of PyPI's; "": that of the build tree
    full: bool = False  # only with scripts/test --full
    link: bool = True
    libraries: tuple[str, ...] = ()
    # Processors of the emulator that programs run as, linked with aft::compiled instead of kernels of their own; the
    # levels that the first and the last of them have.
    processors: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()


def zig(target, *flags):
    return ("zig", "-target", target, *flags)


# An x86-64 processor of any age: zig would compile for the machine's own.
ANY_X86 = "-mcpu=x86_64"

TARGETS = (
    # Threads by the C++ library's POSIX model, the one of the two that has std::mutex in GCC 12.
    Target("windows-x86_64-mingw", "Windows x86-64, MinGW-w64 g++; also behind `<windows.h>` with its macros `min` and `max`",
           ("x86_64-w64-mingw32-g++-posix", "-static"), (CONFORMANCE, WINDOWS), "wine"),
    Target("linux-aarch64", "Linux arm64, g++, NEON", ("aarch64-linux-gnu-g++", "-static"), (CONFORMANCE,), "qemu-aarch64-static"),
    Target("macos-aarch64", "macOS arm64, clang with libc++", zig("aarch64-macos"), (SMOKE,), link=False),
    Target("macos-x86_64", "macOS x86-64, clang with libc++", zig("x86_64-macos", ANY_X86), (SMOKE,), link=False),
    Target("windows-aarch64", "Windows arm64, clang with libc++, GNU ABI", zig("aarch64-windows-gnu"), (WINDOWS, SMOKE), link=False),
    # A C++ library and a C library are built for each before anything links: one and a half minutes of a core.
    Target("linux-x86_64-musl", "Linux x86-64 with musl, static, clang with libc++", zig("x86_64-linux-musl", ANY_X86, "-static"),
           (CONFORMANCE,), "native", full=True),
    Target("macos-aarch64-linked", "macOS arm64, clang with libc++, linked", zig("aarch64-macos"), (SMOKE,), full=True),
    Target("macos-x86_64-linked", "macOS x86-64, clang with libc++, linked", zig("x86_64-macos", ANY_X86), (SMOKE,), full=True),
    Target("windows-aarch64-linked", "Windows arm64, clang with libc++, GNU ABI, linked", zig("aarch64-windows-gnu"),
           (WINDOWS, SMOKE), full=True),
    Target("windows-x86_64-clang", "Windows x86-64, clang with libc++, GNU ABI", zig("x86_64-windows-gnu", ANY_X86),
           (CONFORMANCE, WINDOWS), "wine", full=True),
    Target("linux-aarch64-bf16", "Linux arm64, g++, NEON with products of bfloat16",
           ("aarch64-linux-gnu-g++", "-static", "-march=armv8.2-a+bf16"), (CONFORMANCE,), "qemu-aarch64-static", full=True),
    # QEMU 7.2's `max` has products of bfloat16, no processor with a name has. Both kernels are in one program.
    Target("linux-aarch64-compiled", "Linux arm64, g++, `aft::compiled`: as a Neoverse N1 on NEON, as QEMU's `max` with products of bfloat16",
           ("aarch64-linux-gnu-g++",), (CONFORMANCE,), "qemu-aarch64-static", full=True, processors=("neoverse-n1", "max"),
           levels=("neon", "neon-bf16")),
    # No vectors that xsimd knows: those of plain numbers, of an older and of the newest version. VSX came with 14.
    Target("linux-riscv64", "Linux riscv64, g++, vectors of plain numbers", ("riscv64-linux-gnu-g++", "-static", "-DAFT_EMULATED_SIMD"),
           (CONFORMANCE,), "qemu-riscv64-static", "14.1.0", full=True,
           # Atomic bytes, which the processor has no instructions for.
           libraries=("-latomic",)),
    Target("linux-s390x", "Linux s390x (big-endian), g++, vectors of plain numbers",
           ("s390x-linux-gnu-g++", "-static", "-DAFT_EMULATED_SIMD"), (CONFORMANCE,), "qemu-s390x-static", "13.0.0", full=True),
    Target("linux-ppc64le", "Linux ppc64le, g++, VSX", ("powerpc64le-linux-gnu-g++", "-static", "-mcpu=power8"), (CONFORMANCE,),
           "qemu-ppc64le-static", "14.1.0", full=True),
)
