# SPDX-License-Identifier: Apache-2.0
"""What the pages keep of a run of an example: its table, with the machine and the commit that it is of."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NAMES = {"local": "AFT-local", "conv": "AFT-conv", "conv2d": "AFT-conv", "full": "AFT-full", "simple": "AFT-simple",
         "attention": "attention"}


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


def origin():
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "include", "backends", "examples")
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if changed else ""),
        "machine": {
            "cpu": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"),
            "avx512": first_match("/proc/cpuinfo", r"^flags\s*:.* (avx512bw) ") != "unknown",
            "cores": os.cpu_count(),
            "system": first_match("/etc/os-release", r'^PRETTY_NAME="(.*)"$'),
        },
    }


def machine_of(document):
    machine = document["machine"]
    threads = f"{document['threads']} thread{'' if document['threads'] == 1 else 's'}"
    return (f"{machine['cpu']}{' with AVX-512' if machine['avx512'] else ''}, {threads}, "
            f"{document['compiler']}, matrix products by {document['products']}, commit {document['commit']}.")


def read(file):
    return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))


def write(file, document):
    pathlib.Path(file).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def show_or_check(arguments, table):
    """--table FILE and --check FILE PAGE, whose exit status it returns; None for other arguments."""
    if len(arguments) == 2 and arguments[0] == "--table":
        print("\n".join(table(read(arguments[1]))))
        return 0
    if len(arguments) == 3 and arguments[0] == "--check":
        wanted = "\n".join(table(read(arguments[1])))
        if wanted in pathlib.Path(arguments[2]).read_text(encoding="utf-8"):
            return 0
        print(f"{arguments[2]} does not hold this table:\n\n{wanted}", file=sys.stderr)
        return 1
    return None


SHARED = ("data", "training_images", "test_images", "text", "compiler", "products", "threads")


def run_missing(command, file, runs, keep, shared=lambda results: {}):
    """What FILE lacks of these runs, arguments by name, one result each: a run that is finished is kept, so that a call which was
    interrupted goes on. keep(result) is what is kept of one, shared(results) what is the same in all. Returns the document."""
    document = read(file) if pathlib.Path(file).exists() else {**origin(), "runs": {}}
    for name, arguments in runs.items():
        if name in document["runs"]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*command, "--out", folder, *arguments], check=True)
            results = read(pathlib.Path(folder, "results.json"))
        [one] = results["results"]
        document.update({**{key: results[key] for key in SHARED if key in results}, **shared(results)})
        document["runs"][name] = keep(one)
        write(file, document)
    return document


def command(text, table, run_all):
    """What a script of kept runs does with its arguments: --table, --check, or run_all(program, file, options). Returns the exit status."""
    arguments = sys.argv[1:]
    done = show_or_check(arguments, table)
    if done is not None:
        return done
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(text, file=sys.stderr)
        return 2
    run_all(arguments[0], arguments[1], arguments[2:])
    return 0
