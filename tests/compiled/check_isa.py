#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which level of aft::compiled runs, by itself and under each value of AFT_ISA.

check_isa.py <program> <level>...   the levels of this architecture, from the least on; $AFT_RUN: an emulator
"""

import os
import shlex
import subprocess
import sys

WORDS = {"v2": "SSE4.2", "v3": "AVX2 with FMA", "v4": "AVX-512", "v4-bf16": "AVX-512 with BF16", "neon": "NEON",
         "neon-bf16": "NEON"}


def run(program, asked=None):
    """What the program printed, by the first word of each line, and its messages."""
    environment = {k: v for k, v in os.environ.items() if k != "AFT_ISA"}
    if asked is not None:
        environment["AFT_ISA"] = asked
    done = subprocess.run([*shlex.split(os.environ.get("AFT_RUN", "")), program], env=environment, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"AFT_ISA={asked}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    # An emulator warns of what it cannot emulate.
    messages = "".join(line + "\n" for line in done.stderr.splitlines() if not line.startswith("qemu-"))
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines()), messages


def main():
    program, *known = sys.argv[1:]
    wrong = []

    def expect(condition, text):
        if not condition:
            wrong.append(text)

    free, messages = run(program)
    able = free["isas"].split()
    print(f"{free['isa']} runs of {able}: {free['build_info']}")
    expect(messages == "", f"messages without AFT_ISA: {messages}")
    expect(able == [name for name in known if name in able], f"{able} is not in the order of {known}")
    expect(free["isa"] in able, f"{free['isa']} runs, which is none of {able}")

    hashes = {}
    for name in known:
        got, messages = run(program, name)
        expect(got["isas"] == free["isas"], f"AFT_ISA={name} changes what the machine can run")
        if name in able:
            # As a cap that the machine reaches, it is what runs.
            expect((got["isa"], messages) == (name, ""), f"AFT_ISA={name}: {got['isa']} runs, {messages}")
            expect(f", {WORDS[name]} of the compiled library," in got["build_info"], f"{name}: {got['build_info']}")
            hashes[name] = got["hash"]
        else:
            expect(got["isa"] == free["isa"] and messages.count("\n") == 1 and f"AFT_ISA={name} is ignored" in messages,
                   f"AFT_ISA={name}, which is impossible: {got['isa']} runs, {messages}")
    # Of other instruction sets sums have other orders, but for BF16, whose instruction float data do not meet.
    kinds = {name.replace("-bf16", ""): value for name, value in hashes.items()}
    expect(len(set(kinds.values())) == len(kinds), f"levels stand in for each other: {hashes}")

    got, messages = run(program, "v9")
    expect(got == free and messages.count("\n") == 1 and "AFT_ISA=v9 is ignored" in messages,
           f"AFT_ISA=v9, which is unknown: {got['isa']} runs, {messages}")
    got, messages = run(program, "")
    expect(got == free and messages == "", f"an empty AFT_ISA: {got['isa']} runs, {messages}")

    not_run = [name for name in known if name not in able]
    if not_run:
        print(f"not run: {' '.join(not_run)}")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
