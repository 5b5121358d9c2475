#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The binary interface of the C functions, held to a description of it that is committed.

check_abi.py <library> <headers> <dump>           fails where the library and the dump differ in any way
check_abi.py --write <library> <headers> <dump>   describes the library anew, after a change that is meant

A function that is added, or a member at the end of aft_options, is a difference too: whoever reviews the change sees it
in the dump. The library needs debug information. Needs abidw and abidiff of libabigail.
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def describe(library, headers, out):
    """Types of the public header alone, without the paths of one machine."""
    done = run("abidw", "--headers-dir", headers, "--exported-interfaces-only", "--drop-private-types",
               "--drop-undefined-syms", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--type-id-style", "hash", "--out-file", out,
               library)
    if done.returncode != 0:
        sys.exit(f"abidw: {done.stdout}{done.stderr}")
    # Where the sources lay and what the library's file is called is no part of the interface. That they are several files
    # is what the format asks for.
    text = pathlib.Path(out).read_text(encoding="utf-8")
    text = re.sub(r" path='[^']*/", " path='", re.sub(r" soname='[^']*'", "", text))
    pathlib.Path(out).write_text(text, encoding="utf-8")


def exported(library):
    lines = run("nm", "-D", "--defined-only", "--format=posix", library).stdout.splitlines()
    return sorted(line.split()[0].split("@")[0] for line in lines if line.split()[1] not in "A")


def declared(headers):
    text = (pathlib.Path(headers) / "aft.h").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"^AFT_C_API [\w* ]*?(aft_\w+)\(", text, re.M)))


def main():
    write = sys.argv[1] == "--write"
    library, headers, dump = sys.argv[1 + write:]
    functions = declared(headers)
    if exported(library) != functions:
        differences = set(exported(library)) ^ set(functions)
        sys.exit(f"exported, or declared in aft.h, and not both: {', '.join(sorted(differences))}")
    if write:
        describe(library, headers, dump)
        return
    with tempfile.TemporaryDirectory() as folder:
        now, planted = pathlib.Path(folder) / "now.abi", pathlib.Path(folder) / "planted.abi"
        describe(library, headers, now)
        text = now.read_text(encoding="utf-8")
        if "name='aft_options'" not in text:
            sys.exit(f"{library} has no debug information: nothing would be compared but names")
        # A test of the test: a member that took another's place.
        planted.write_text(text.replace("name='causal'", "name='gate_'"), encoding="utf-8")
        if run("abidiff", "--harmless", planted, now).returncode == 0:
            sys.exit("abidiff sees no difference where there is one")
        done = run("abidiff", "--harmless", "--no-show-locs", dump, now)
    if done.returncode != 0:
        sys.exit(f"the binary interface is not that of {dump}, which check_abi.py --write renews:\n{done.stdout}{done.stderr}")
    print(f"{len(functions)} functions as described")


if __name__ == "__main__":
    main()
