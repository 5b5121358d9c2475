#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark program and writes one document: the machine, the build, and every sample.

run.py --binary <aft_bench> --out <result.json> [--threads N] [--quick] [--filter REGEX]
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys

import results

TOP = pathlib.Path(__file__).resolve().parents[2]
# What tells most in two minutes: each kernel once, on the shape of the first bar.
LONGEST_DENSE = 16384
QUICK = ("^((full|local32|local256|local32_backward)/B8_T1024.*/float|full/B8_T1024.*/bfloat16|small/.*|"
         "full_backward/B8_T1024.*/float/one|simple(_backward)?/B(32|2)_T1024_d512/float|conv(_backward)?/.*/float)")


def first_match(path, key):
    try:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.split(":" if ":" in line else "=", 1)[1].strip().strip('"')
    except OSError:
        pass
    return "unknown"


def git(*arguments):
    done = subprocess.run(["git", "-C", str(TOP), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine(harness):
    caches = {f"L{c['level']}{c['type'][0].lower() if c['type'] != 'Unified' else ''}": c["size"]
              for c in harness["context"]["caches"]}
    kib = first_match("/proc/meminfo", "MemTotal")
    return {
        "cpu": first_match("/proc/cpuinfo", "model name"),
        "family": first_match("/proc/cpuinfo", "cpu family"),
        "model": first_match("/proc/cpuinfo", "model\t"),
        "cores": os.cpu_count(),
        "cache_bytes": caches,
        "memory_gib": round(int(kib.split()[0]) / 2**20, 1) if kib[0].isdigit() else None,
        "system": first_match("/etc/os-release", "PRETTY_NAME"),
        "kernel": platform.release().split("-")[0],
    }


def commit():
    """The commit, and whether what was measured differs from it."""
    dirty = git("status", "--porcelain", "--", "include", "backends", "bench", "cmake", "CMakeLists.txt",
                ":!bench/results")
    return {"commit": git("rev-parse", "HEAD") or "unknown", "modified": bool(dirty)}


def peers_command(options):
    """The shell command of the peers' process: only its environment finds PyTorch and the libraries that PyTorch links."""
    libraries = [str(p) for p in sorted(options.peers.glob("nvidia/*/lib"))]
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    libraries.append(f"{toolkit}/lib64")
    # Bound threads pass on where they are bound; the peers' own are bound by the same variables, from all processors.
    anywhere = ["taskset", "--cpu-list", ",".join(map(str, sorted(os.sched_getaffinity(0))))]
    keep = ["MALLOC_MMAP_MAX_=0", f"MALLOC_TRIM_THRESHOLD_={1 << 40}"] if options.keep_memory else []
    return shlex.join([*anywhere, "env", *keep, f"PYTHONPATH={options.peers}", f"LD_LIBRARY_PATH={':'.join(libraries)}",
                       sys.executable, str(TOP / "bench/report/peers.py"), str(options.threads)])


def race(options, raw):
    command = [options.binary, f"--threads={options.threads}", f"--benchmark_out={raw}", "--benchmark_out_format=json"]
    if options.peers:
        command.append(f"--peers={peers_command(options)}")
    if options.filter:
        command.append(f"--benchmark_filter={options.filter}")
    if options.rounds:
        command.append(f"--rounds={options.rounds}")
    # Threads that the system puts on one processor for a while wait for each other until its clock ticks: then calls of
    # half a millisecond took 4 or 8, in one sample of a hundred. So every contestant's have a processor each.
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OMP_PROC_BIND="close", OMP_PLACES="cores")
    if options.isa:
        environment["ONEDNN_MAX_CPU_ISA"] = options.isa
    subprocess.run(command, check=True, env=environment)
    return json.loads(raw.read_text(encoding="utf-8"))


def peak_memory(options):
    """Peak bytes of one call on a sequence of 512 channels; a process per figure."""
    figures = []
    # Small blocks as well from pages of their own, which go back when they are freed.
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), MALLOC_MMAP_THRESHOLD_="65536")
    program = pathlib.Path(options.binary).with_name("aft_memory")
    peers = shlex.split(peers_command(options)) if options.peers else None
    for T in (T for T in (256, 1024, 4096, 16384, 65536) if T <= options.longest):
        calls = [(f"aft_{c}", [program, c, str(T), str(options.threads)])
                 for c in ("full", "factorized", "local32", "simple") if c != "full" or T <= LONGEST_DENSE]
        if peers:
            calls += [(name, [*peers, kind, str(T)])
                      for name, kind in (("sdpa", "sdpa"), ("eager_full", "full"), ("eager_local", "local"),
                                         ("eager_simple", "simple"))
                      if T <= LONGEST_DENSE or kind == "simple"]
        for name, command in calls:
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            figures.append({"call": name, "T": T, "bytes": int(done.stdout)})
    return figures


def compile_times(options):
    """Of a file with one call, by the script that also users can run."""
    out = options.out.with_suffix(".compile.json")
    subprocess.run([sys.executable, TOP / "scripts/compile_time", "--runs", "1", "--json", out], check=True)
    document = json.loads(out.read_text(encoding="utf-8"))
    out.unlink()
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--filter", default="")
    parser.add_argument("--longest", type=int, default=65536, help="positions for which peak memory is read")
    parser.add_argument("--isa", default="", help="the most that oneDNN may use, as in ONEDNN_MAX_CPU_ISA")
    parser.add_argument("--peers", type=pathlib.Path, help="folder that pip installed PyTorch into")
    parser.add_argument("--keep-memory", action="store_true",
                        help="the peers' allocator keeps all that was freed, which glibc's does not by itself")
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    if options.quick:
        options.filter = options.filter or QUICK
        options.rounds = options.rounds or 3

    started = datetime.datetime.now(datetime.timezone.utc)
    source = commit()
    load = [os.getloadavg()[0]]
    raw = options.out.with_suffix(".raw.json")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    harness = race(options, raw)
    raw.unlink()
    load.append(os.getloadavg()[0])
    races, errors = results.condense(harness)
    context = harness["context"]
    document = {
        "format": results.FORMAT,
        "date": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.datetime.now(datetime.timezone.utc) - started).total_seconds()),
        **source,
        "threads": options.threads,
        "machine": machine(harness),
        "compiler": context["compiler"],
        "flags": context["flags"],
        "onednn": context["onednn"],
        "onednn_isa": options.isa or "all",
        "pytorch": context["peers"],
        # Processes that wanted to run, before and after; ours are as many as the threads.
        "load": [round(x, 1) for x in load],
        "races": races,
    }
    results.write(document, options.out)
    # A filter that leaves something out still is a whole run.
    if not options.quick and (not options.filter or options.filter.startswith("-")):
        document["memory"] = peak_memory(options)
        results.write(document, options.out)
        document["compile"] = compile_times(options)
        results.write(document, options.out)
    print(f"wrote {os.path.relpath(options.out)}")
    subprocess.run([sys.executable, TOP / "bench/report/bars.py", options.out], check=True)
    if errors:
        sys.exit("\n".join(["", "left out:", *errors]))


if __name__ == "__main__":
    main()
