#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the pack where there is nothing but nvcc, g++ and the system's own tools.

bare_test.py [--all] [--without-root] <nvcc> <folder to work in>

A root of its own, without network, holds /usr read-only, the toolkit and the pack; CMake, ninja, make, git, Python and every
header of a library that our tests use are hidden in it. Where the system allows no such root, the environment and PATH are
emptied instead, and the compilers' own lists of what they have read show that no such header was; --without-root
takes that way anywhere. --all builds both programs as users get their kernels, in place of the smaller one with little optimisation.
"""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN_TOOLS = ("cmake", "ctest", "ninja", "make", "meson", "git", "python3", "perl", "pkg-config")
HIDDEN_HEADERS = ("doctest", "eigen3", "xsimd", "dlpack", "benchmark", "nlohmann")
MOST_KIB = 30 << 10
NO_DEVICE = 77

# Within a mount namespace; what it mounts ends with it.
ROOT = r"""set -eu
root=$1 pack=$2 cuda=$3
shift 3
mkdir -p "$root"/{usr,proc,dev,tmp,pack,etc/alternatives,toolkit}
for link in bin lib lib64 sbin; do ln -sfn "usr/$link" "$root/$link"; done
mount --rbind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind /etc/alternatives "$root/etc/alternatives"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs none "$root/tmp"
mount --bind "$pack" "$root/pack"
mount --bind "$cuda" "$root/toolkit"
for header in @HEADERS@; do
  for place in usr/include usr/local/include; do
    [ ! -d "$root/$place/$header" ] || mount -t tmpfs -o ro none "$root/$place/$header"
  done
done
for tool in @TOOLS@; do
  for place in "$root"/usr/bin/$tool* "$root"/usr/local/bin/$tool*; do
    [ ! -f "$place" ] || mount --bind /dev/null "$place"
  done
done
exec chroot "$root" /usr/bin/env -i "$@"
"""
# What has to be missing, before what has to work.
INSIDE = r"""for tool in @TOOLS@; do [ ! -x "$(command -v $tool)" ] || { echo "$tool is there"; exit 3; }; done
for header in doctest/doctest.h xsimd/xsimd.hpp eigen3/Eigen/Core; do
  ! echo "#include <$header>" | g++ -E -x c++ - >/dev/null 2>&1 || { echo "$header is there"; exit 3; }
done
exec /pack/run "$@"
"""


def filled(text):
    return text.replace("@TOOLS@", " ".join(HIDDEN_TOOLS)).replace("@HEADERS@", " ".join(HIDDEN_HEADERS))


def own_root():
    """How to get a mount namespace here, or nothing."""
    for command in (["unshare", "--mount", "--net"], ["unshare", "--map-root-user", "--mount", "--net"]):
        try:
            if subprocess.run([*command, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0:
                return command
        except OSError:
            break
    return None


def run_in_root(command, work, pack, toolkit, arguments, variables):
    root = work / "root"
    names = [f"{name}={value}" for name, value in variables.items()]
    inside = ["PATH=/usr/bin:/bin:/toolkit/bin", "NVCC=/toolkit/bin/nvcc", *names, "bash", "-c", filled(INSIDE), "run", *arguments]
    return subprocess.run([*command, "bash", "-c", filled(ROOT), "root", str(root), str(pack), str(toolkit), *inside],
                          capture_output=True, text=True, errors="replace", check=False)


def run_with_nothing(work, pack, toolkit, arguments, variables):
    """PATH has the compilers and the system's tools by name; what was read of headers is looked at afterwards."""
    tools = work / "tools"
    tools.mkdir(exist_ok=True)
    for place in ("/usr/bin", "/bin"):
        for tool in pathlib.Path(place).iterdir():
            if not tool.name.startswith(HIDDEN_TOOLS) and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    flags = variables.get("NVCC_APPEND_FLAGS", "") + " -Xcompiler=-H"
    environment = {**variables, "PATH": str(tools), "NVCC": str(toolkit / "bin/nvcc"), "NVCC_APPEND_FLAGS": flags, "HOME": "/nowhere"}
    done = subprocess.run([pack / "run", *arguments], env=environment, capture_output=True, text=True, errors="replace", check=False)
    carried = 0
    for log in (pack / "build/objects").rglob("*.log"):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(".") and any(f"/{header}/" in line for header in HIDDEN_HEADERS):
                assert " third_party/" in line, f"{log}: a header of the machine: {line}"
                carried += 1
    assert carried > 0, "the compilers have not said what they read"
    return done


def main():
    everything = "--all" in sys.argv
    nvcc, work = [pathlib.Path(a) for a in sys.argv[1:] if not a.startswith("--")]
    toolkit = nvcc.resolve().parents[1]
    work = work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    pack = work / "pack"
    subprocess.run([HERE / "make", pack], check=True)
    size = sum(f.stat().st_size for f in pack.rglob("*") if f.is_file())
    assert size <= MOST_KIB << 10, f"the pack takes {size} bytes"
    managed = [f for f in pack.rglob("*.*") if f.is_file() and "cudaMalloc" + "Managed" in f.read_text(encoding="utf-8", errors="replace")]
    assert not managed, f"memory whose pages move between host and device: {managed}"

    # An architecture by name: without a GPU the choice would be one that lacks half of the kernels.
    variables = {"AFT_GPU_ARCH": "90a", "AFT_JOBS": str(os.cpu_count())}
    arguments = []
    if not everything:
        variables["NVCC_APPEND_FLAGS"] = "-Xcicc -O1 -Xptxas -O1 -Xcompiler=-O0"
        arguments = ["--only", "^(build gemm|gemm)$"]
    elif "NVCC_APPEND_FLAGS" in os.environ:
        variables["NVCC_APPEND_FLAGS"] = os.environ["NVCC_APPEND_FLAGS"]
    command = None if "--without-root" in sys.argv else own_root()
    how = "a root of its own" if command else "an empty environment"
    done = (run_in_root(command, work, pack, toolkit, arguments, variables) if command
            else run_with_nothing(work, pack, toolkit, arguments, variables))
    print(done.stdout, done.stderr)
    for log in sorted((pack / "out/logs").glob("build*.log")):
        print(f"== {log.name}", log.read_text(encoding="utf-8", errors="replace")[:4000], sep="\n")
    lines = [json.loads(line) for line in (pack / "out/results.jsonl").read_text(encoding="utf-8").splitlines()]
    outcomes = {line["stage"]: line["outcome"] for line in lines if "outcome" in line}
    built = ["build gemm", "build check"] if everything else ["build gemm"]
    for stage in ("compilers", *built):
        assert outcomes.get(stage) == "passed", (stage, outcomes)
    # Every stage that asks a card has been reached, and says what it found.
    asked = {stage: o for stage, o in outcomes.items() if stage not in ("compilers", *built) and not stage.endswith("check")}
    assert asked.keys() >= {"device", "gemm"} and set(asked.values()) <= {"no device", "passed"}, outcomes
    assert done.returncode == (NO_DEVICE if asked["device"] == "no device" else 0), done.returncode
    compiled = next(line["compiled_for"] for line in lines if "compiled_for" in line)
    assert compiled.endswith("code=sm_90a"), compiled
    if everything:
        timed = [stage for stage in asked if stage.startswith("timings: ")]
        assert len(timed) > 10, outcomes
    for program in (pack / "build").glob("aft_gpu_*[a-z]"):
        if program.suffix == ".stamp":
            continue
        needed = subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True).stdout
        libraries = [line.split()[1] for line in needed.splitlines() if "NEEDED" in line]
        assert not any("cuda" in name or "cublas" in name for name in libraries), libraries
        print(f"{program.name}: {program.stat().st_size} bytes, needs {shlex.join(libraries)}")
    print(f"built in {how}, {size} bytes of sources")


if __name__ == "__main__":
    main()
