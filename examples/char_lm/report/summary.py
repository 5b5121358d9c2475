#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/demo.md says about a run of the demo.

summary.py RESULTS.json SUMMARY.json       keeps the table of a run, and adds machine and commit
summary.py --writing RESULTS.json SUMMARY.json   keeps how fast a run wrote, and nothing else of it
summary.py --table SUMMARY.json            prints it as Markdown
summary.py --check SUMMARY.json PAGE.md    fails if the page holds another table
"""

import json
import os
import pathlib
import re
import subprocess
import sys

KEPT = ("mixer", "parameters", "held_out_bits", "mixer_ms", "step_ms", "peak_bytes", "context", "dim", "layers", "heads",
        "window", "batch", "steps", "learning_rate", "bias_lr_scale", "seed")
# Of runs that wrote something. Speed does not ask what a model has learned: one step of training is enough for these.
WRITING = ("characters", "characters_per_second", "stream_us", "recompute_us", "state_bytes")
SHAPE = ("mixer", "context", "dim", "layers", "heads", "window")
NAMES = {"local": "AFT-local", "conv": "AFT-conv", "full": "AFT-full", "simple": "AFT-simple", "attention": "attention"}


def first_match(file, pattern):
    try:
        found = re.search(pattern, pathlib.Path(file).read_text(encoding="utf-8"), flags=re.M)
    except OSError:
        found = None
    return found.group(1) if found else "unknown"


def git(*arguments):
    top = pathlib.Path(__file__).resolve().parents[3]
    done = subprocess.run(["git", "-C", str(top), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def summary(results, writing=False):
    shared = ("compiler", "products", "threads") + (() if writing else ("text", "order1_bits"))
    kept = SHAPE + WRITING if writing else KEPT + WRITING
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "include", "backends", "examples")
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if changed else ""),
        "machine": {
            "cpu": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"),
            "avx512": first_match("/proc/cpuinfo", r"^flags\s*:.* (avx512bw) ") != "unknown",
            "cores": os.cpu_count(),
            "system": first_match("/etc/os-release", r'^PRETTY_NAME="(.*)"$'),
        },
        **{key: results[key] for key in shared},
        "results": [{key: run[key] for key in kept if key in run} for run in results["results"]],
    }


def name_of(run):
    return NAMES[run["mixer"]] + (" with its cache" if run["mixer"] == "attention" else "")


def state_of(run):
    return f"{run['state_bytes'] / 1e3:,.0f} kB"


def machine_of(document):
    machine = document["machine"]
    threads = f"{document['threads']} thread{'' if document['threads'] == 1 else 's'}"
    return (f"{machine['cpu']}{' with AVX-512' if machine['avx512'] else ''}, {threads}, "
            f"{document['compiler']}, matrix products by {document['products']}, commit {document['commit']}.")


def writing_table(document):
    run = document["results"][0]
    yield machine_of(document)
    yield f"Context {run['context']}, {run['layers']} layers of {run['dim']}, {run['characters']:,} characters each:"
    yield ""
    yield ("| mixer | characters a second | ms a character with a full context, by stream | recomputed | times as fast | "
           "state of a sequence |")
    yield "|---|---|---|---|---|---|"
    for run in document["results"]:
        fast, slow = run["stream_us"], run["recompute_us"]
        yield (f"| {name_of(run)} | {run['characters_per_second']:,.0f} | {fast / 1e3:.2f} | {slow / 1e3:.2f} | "
               f"{slow / fast:.0f} | {state_of(run)} |")


def table(document):
    run = document["results"][0]
    if "steps" not in run:
        yield from writing_table(document)
        return
    yield machine_of(document)
    yield f"{run['steps']} steps of {run['batch']} x {run['context']} bytes, {run['layers']} layers of {run['dim']}:"
    yield ""
    yield ("| mixer | parameters | bits per character, held out | ms per step, mixer | whole | peak memory | "
           "characters a second | state of a sequence |")
    yield "|---|---|---|---|---|---|---|---|"
    for run in document["results"]:
        wrote = "not measured | not measured"
        if "state_bytes" in run:
            wrote = f"{run['characters_per_second']:,.0f} | {state_of(run)}"
        yield (f"| {NAMES[run['mixer']]} | {run['parameters']:,} | {run['held_out_bits']:.2f} | {run['mixer_ms']:.0f} | "
               f"{run['step_ms']:.0f} | {run['peak_bytes'] / 1e6:.0f} MB | {wrote} |")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "--table":
        print("\n".join(table(json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8")))))
        return 0
    if len(arguments) == 3 and arguments[0] == "--check":
        wanted = "\n".join(table(json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))))
        if wanted in pathlib.Path(arguments[2]).read_text(encoding="utf-8"):
            return 0
        print(f"{arguments[2]} does not hold this table:\n\n{wanted}", file=sys.stderr)
        return 1
    writing = arguments[:1] == ["--writing"]
    if writing:
        arguments = arguments[1:]
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    document = summary(json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8")), writing)
    pathlib.Path(arguments[1]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
