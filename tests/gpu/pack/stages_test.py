#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pack's `run` over programs that fail, hang and die: no stage keeps another from running, and every line is whole.

stages_test.py <folder to work in>
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
sys.path.insert(0, str(TOP / "bench/report"))
sys.path.insert(0, str(HERE))

import collect  # noqa: E402: found by the lines above
import gpu  # noqa: E402

LIMIT = 4
SHAPES = ("full B2 T3", "a shape that hangs", "conv 3x3")
# What stands for the programs: it is told what to do by the stage's name.
PROGRAM = r"""#!/usr/bin/env bash
stage="" results=""
[ "$1" != --list ] || { printf '%s\n' @SHAPES@; exit; }
while [ $# -gt 0 ]; do
  case $1 in
    --stage) stage=$2; shift ;;
    --results) results=$2; shift ;;
  esac
  shift
done
line() { printf '{"stage": "%s", %s}\n' "$stage" "$1" >>"$results"; }
case $stage in
  gemm) line '"begins": "a case of gemm"'; echo 'bad "quotes" \ and a	tab'; exit 1 ;;
  memcheck) line '"begins": "hangs and does not want to end"'; trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000 ;;
  racecheck) kill -SEGV $$ ;;
  synccheck) echo fine ;;
  *"a shape that hangs") sleep 1000 & wait ;;
  *"full B2 T3")
    line '"device": "a card", "copy_bytes_per_second": 2e12'
    line '"case": "full B2 T3", "type": "bf16", "pass": "forward", "ms": 1.5, "copy_ms": 0.5, "of_copy": 0.333333, "cublas_ms": 1, "of_cublas": 0.666667'
    ;;
  *full_test.cpp) line '"test": "a wrong result", "passed": false'; exit 1 ;;
  # Ended in the middle of a line, as by a card that takes the machine with it.
  *local_test.cpp) printf '{"stage": "%s", "begi' "$stage" >>"$results"; kill -KILL $$ ;;
  *simple_test.cpp) exit 77 ;;
  *conv_test.cpp) head -c 300000 /dev/urandom; exit 1 ;;
esac
"""
SANITIZER = """#!/usr/bin/env bash
while [ "${1#--}" != "$1" ]; do shift 2; done
exec "$@"
"""
# A toolkit that makes programs which find no device, of a card that does not answer when it is asked what it is. One file
# of the larger program does not compile.
NVCC = r"""#!/usr/bin/env bash
case "$*" in
  *--version*) echo 'Cuda compilation tools, release 12.4, V12.4.131'; exit ;;
  *--list-gpu-code*) echo sm_80; exit ;;
  *cuts_test.cpp*) echo 'cuts_test.cpp(3): error: a planted one'; exit 1 ;;
  *device.cu*) text='sleep 1000' ;;
  *) text='exit 77' ;;
esac
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n%s\n' "$text" >"$2"
chmod +x "$2"
"""
EXPECTED = {
    "gemm": "failed", "memcheck": "timed out", "racecheck": "failed", "synccheck": "passed",
    "timings: full B2 T3": "passed", "timings: a shape that hangs": "timed out", "timings: conv 3x3": "passed",
    "tests: unit/operators/full_test.cpp": "failed", "tests: unit/operators/local_test.cpp": "failed",
    "tests: unit/operators/simple_test.cpp": "no device", "tests: unit/operators/conv_test.cpp": "failed",
}


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def run(pack, out, *options, **variables):
    environment = {**os.environ, "AFT_GPU_OUT": str(out), **variables}
    return subprocess.run([pack / "run", *options], env=environment, capture_output=True, text=True, errors="replace", timeout=300, check=False)


def results(out):
    return collect.parsed((out / "results.jsonl").read_text(encoding="utf-8"))


def outcomes(lines):
    found = [(line["stage"], line["outcome"]) for line in lines if "outcome" in line]
    assert len(found) == len(dict(found)), f"a stage ended twice: {found}"
    return dict(found)


def sleepers(group_of):
    """Processes that a stage has left behind, by the time that they were to sleep."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x001000\x00" and str(group_of) in os.readlink(entry.parent / "cwd"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def planted_faults(pack, work):
    programs = work / "programs"
    text = PROGRAM.replace("@SHAPES@", " ".join(f'"{s}"' for s in SHAPES))
    write_program(programs / "aft_gpu_gemm", text)
    write_program(programs / "aft_gpu_check", text)
    write_program(work / "tools/compute-sanitizer", SANITIZER)
    out = work / "out"
    path = f"{work / 'tools'}:{os.environ['PATH']}"
    began = time.monotonic()
    done = run(pack, out, "--programs", str(programs), AFT_STAGE_SECONDS=str(LIMIT), PATH=path)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    lines, broken = results(out)
    # One was begun by a program that was killed; nothing is lost of the next.
    assert len(broken) == 1, broken
    text = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert text[broken[0] - 1] == '{"stage": "tests: unit/operators/local_test.cpp", "begi', text[broken[0] - 1]
    seen = outcomes(lines)
    sources = (pack / "tests/gpu/sources.txt").read_text(encoding="utf-8").split()
    stages = {*EXPECTED, *(f"tests: {s.removeprefix('tests/')}" for s in sources)}
    assert set(seen) == stages, set(seen) ^ stages
    for stage, outcome in seen.items():
        assert outcome == EXPECTED.get(stage, "passed"), (stage, outcome)
    # Those that hang have had their limit, and not much more.
    assert time.monotonic() - began < 120
    assert not sleepers(pack), "a stage that was ended has left a process behind"
    last = {line["stage"]: line["last"] for line in lines if "last" in line}
    assert last["gemm"] == 'bad "quotes" \\ and a tab', last["gemm"]
    summary = (out / "summary.txt").read_text(encoding="utf-8")
    for words in ("2 timed out\n", '    last test begun: "hangs and does not want to end"', '    failed: "a wrong result"'):
        assert words in summary, summary

    made = collect.document(lines)
    assert made["device"] == "a card" and made["copy_bytes_per_second"] == 2e12 and len(made["timings"]) == 1, made
    assert made["failed_tests"] == ["tests: unit/operators/full_test.cpp: a wrong result"], made["failed_tests"]
    page = "\n".join(gpu.page([(pathlib.Path("card.json"), made)]))
    assert "| full B2 T3 | bf16 | forward | 1.5 |" in " ".join(page.split()), page


def time_over(pack, work):
    done = run(pack, work / "short", "--programs", str(work / "programs"), "--seconds", "0")
    seen = outcomes(results(work / "short")[0])
    assert done.returncode == 1 and set(seen.values()) == {"not run"}, (done.returncode, seen)


def chosen(pack, work):
    done = run(pack, work / "chosen", "--programs", str(work / "programs"), "--only", "rows_test|^timings: full")
    seen = outcomes(results(work / "chosen")[0])
    assert done.returncode == 0 and set(seen) == {"timings: full B2 T3", "tests: unit/options/rows_test.cpp"}, (done.returncode, seen)


def no_device(pack, work):
    for name in ("aft_gpu_gemm", "aft_gpu_check"):
        write_program(work / "bare" / name, "#!/bin/sh\n[ \"$1\" = --list ] && echo a shape && exit 0\nexit 77\n")
    done = run(pack, work / "none", "--programs", str(work / "bare"))
    assert done.returncode == 77, (done.returncode, done.stdout)


def old_compilers(pack, work):
    """Ubuntu 22.04's, and a toolkit before C++20, are named with what to do."""
    gcc = work / "old/g++"
    write_program(gcc, "#!/bin/sh\necho 11.4.0\n")
    write_program(work / "old/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    write_program(work / "older/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 11.5, V11.5.119'\n")

    def said(**variables):
        done = subprocess.run([pack / "build_programs", "compilers"], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout
        return done.stdout

    words = said(CXX=str(gcc), NVCC=str(work / "old/nvcc"))
    assert "g++ 11.4.0 is too old: aft needs g++ 12 or newer" in words and "apt install g++-12" in words, words
    words = said(NVCC=str(work / "older/nvcc"))
    assert "nvcc 11.5.119 is too old" in words and "12.0" in words, words
    assert "there is no nvcc" in said(NVCC=str(work / "nowhere/nvcc"))
    # A stage that has no compilers leaves the others to say so.
    done = run(pack, work / "unbuilt", CXX=str(gcc), NVCC=str(work / "old/nvcc"))
    seen = outcomes(results(work / "unbuilt")[0])
    assert done.returncode == 1 and seen["compilers"] == seen["build gemm"] == seen["build check"] == "failed", seen
    assert seen["gemm"] == seen["timings"] == seen["tests: gpu/device_test.cpp"] == "not run", seen


def silent_card(pack, work):
    write_program(work / "toolkit/nvcc", NVCC)
    done = run(pack, work / "silent", "--only", "^gemm$|^build|cuts_test|rows_test", AFT_STAGE_SECONDS="12", NVCC=str(work / "toolkit/nvcc"))
    lines, broken = results(work / "silent")
    assert done.returncode == 1 and not broken, (done.returncode, broken)
    assert outcomes(lines) == {
        "compilers": "passed", "device": "timed out", "build gemm": "passed", "gemm": "no device", "build check": "failed",
        "tests: unit/options/rows_test.cpp": "not run", "tests: unit/streams/cuts_test.cpp": "not run"}, outcomes(lines)
    last = {line["stage"]: line["last"] for line in lines if "last" in line}
    assert re.match(r"1 of \d\d files do not compile", last["build check"]) and "error: a planted one" in last["build check"], last
    assert not sleepers(pack), "the program that asks the card is still there"


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    signal.alarm(1500)
    pack = work / "pack"
    subprocess.run([HERE / "make", pack], check=True)
    for test in (planted_faults, time_over, chosen, no_device, old_compilers, silent_card):
        test(pack, work)
        print(f"{test.__name__}: as it should be")


if __name__ == "__main__":
    main()
