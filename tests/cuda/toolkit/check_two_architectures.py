#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two files of one program, compiled for two architectures, must each keep their own kernels and callers."""

import argparse
import pathlib
import re
import subprocess
import sys

SOURCE = """#include <aft/aft.hpp>
void call_{arch}(const float* x, float* y) {{
  const aft::tensor_view<const float, 2, aft::device_space> in{{x, {{1, 1}}}};
  aft::simple(in, in, in, aft::tensor_view<float, 2, aft::device_space>{{y, {{1, 1}}}});
}}
"""
MAIN = """void call_80(const float*, float*);
void call_90(const float*, float*);
int main(int count, char**) {
  if (count > 100) { call_80(nullptr, nullptr); call_90(nullptr, nullptr); }
}
"""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    # Names alone are looked at: the kernels stay PTX, not optimised.
    flags = ["-std=c++20", "-O0", "-Xcicc", "-O0", *[f"-I{path}" for path in args.include]]
    objects = []
    for arch in ("80", "90"):
        source = args.work / f"call_{arch}.cu"
        source.write_text(SOURCE.format(arch=arch), encoding="utf-8")
        objects.append(str(source.with_suffix(".o")))
        run([args.nvcc, *flags, f"-gencode=arch=compute_{arch},code=compute_{arch}", "-c", str(source), "-o", objects[-1]])
    entry = args.work / "main.cpp"
    entry.write_text(MAIN, encoding="utf-8")
    program = args.work / "program"
    run([args.nvcc, *objects, str(entry), "-o", str(program)])
    symbols = run(["nm", "-C", str(program)])
    for arch in ("80", "90"):
        for name in ("fold_kernel<float>", "run_forward<float"):
            if not re.search(rf"sm{arch}0x[^\n]*{re.escape(name)}", symbols):
                sys.exit(f"the program has no {name} of its own for sm_{arch}")
    if re.search(r"aft::isa_\w+sm\w+::[^\n]*fold_kernel<float>", run(["nm", "-C", "-D", str(program)])):
        sys.exit("kernels are visible from outside the program")
    print("each file keeps its kernels")


if __name__ == "__main__":
    main()
