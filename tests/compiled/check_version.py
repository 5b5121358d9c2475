#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file compiled with another version's headers does not link; one with the library's does, and holds no kernels.
Files that call the library with other flags for the processor share no function.

check_version.py <compiler> <top of the project> <shared library> <folder to work in> <flag>...
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

PROGRAM = """#include <aft/aft.hpp>
int main() {
  const float x = 1;
  float y = 0;
  const aft::tensor_view<const float, 2> in{&x, {1, 1}};
  aft::simple(in, in, in, aft::tensor_view<float, 2>{&y, {1, 1}}, aft::options{.gate_fn = aft::gate::none});
  return y == 1 ? 0 : 1;
}
"""

# Other flags for the processor, as far as its compiler has them.
OTHER_FLAGS = {"x86_64": ("-march=x86-64-v3",), "aarch64": ("-march=armv8.2-a+sve",)}


def shared_functions(first, second):
    """Functions of the library that both objects hold for the linker to keep one of. Those of the exceptions are meant to
    be: they are caught by type, and move nothing but pointers."""
    def weak(path):
        text = subprocess.run(["nm", "--defined-only", path], check=True, capture_output=True, text=True).stdout
        return {line.split()[-1] for line in text.splitlines() if line.split()[-2] in "Ww" and "3aft" in line and not re.search(r"(shape|device)_error", line)}
    return sorted(weak(first) & weak(second))


def main():
    compiler, top, library, work, *flags = sys.argv[1:]
    top, library, work = pathlib.Path(top), pathlib.Path(library), pathlib.Path(work)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(top / "include", work / "headers")
    source = work / "program.cpp"
    source.write_text(PROGRAM, encoding="utf-8")
    version = work / "headers/aft/core/version.hpp"
    text, count = re.subn(r"(AFT_VERSION_PATCH) (\d+)", lambda m: f"{m[1]} {int(m[2]) + 1}",
                          version.read_text(encoding="utf-8"))
    assert count == 1
    version.write_text(text, encoding="utf-8")

    def build(headers, name):
        return subprocess.run([compiler, "-std=c++20", "-O1", "-DAFT_COMPILED=1", *flags, f"-I{headers}",
                               f"-I{top}/backends/compiled/include", "-MD", "-MF", work / f"{name}.d", source, library,
                               f"-Wl,-rpath,{library.parent}", "-o", work / name], capture_output=True, text=True,
                              check=False)

    def compile_object(name, *more):
        path = work / f"{name}.o"
        subprocess.run([compiler, "-std=c++20", "-O0", "-DAFT_COMPILED=1", *flags, *more, f"-I{top}/include",
                        f"-I{top}/backends/compiled/include", "-c", source, "-o", path], check=True)
        return path

    if other_flags := OTHER_FLAGS.get(platform.machine()):
        low, high = compile_object("low"), compile_object("high", *other_flags)
        if shared := shared_functions(low, high):
            sys.exit(f"files of {other_flags} and of none share functions: {shared[:5]}")
        assert shared_functions(low, low), "nothing was compared"

    same = build(top / "include", "same")
    if same.returncode != 0:
        sys.exit(f"the library's own version does not link:\n{same.stderr}")
    subprocess.run([work / "same"], check=True)
    kernels = sorted(set(re.findall(r"\S*(?:aft/cpu|xsimd)/\S+", (work / "same.d").read_text(encoding="utf-8"))))
    if kernels:
        sys.exit(f"the file compiles kernels: {kernels}")
    other = build(work / "headers", "other")
    if other.returncode == 0:
        sys.exit("another version's headers link")
    if not re.search(r"compiled_v\d+_\d+_\d+.*compiled_forward_f32", other.stderr):
        sys.exit(f"another version's headers fail for another reason:\n{other.stderr}")
    print(next(line for line in other.stderr.splitlines() if "compiled_forward_f32" in line))


if __name__ == "__main__":
    main()
