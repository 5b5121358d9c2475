#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that no compiler checks: licence lines, file sizes, finished text, and documents that name real paths."""

import collections
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

MAX_LINES = 400
MAX_FILES = 15
# Folders of many files alike, which nobody reads one after the other.
COLLECTIONS = ("tests/fuzz/corpus", "docs/adr", "bench/results", "tests/compile_fail/cases")
CPP = {".hpp", ".cpp", ".cuh", ".cu", ".h", ".c"}
SOURCES = CPP | {".py", ".cmake", ".sh"}
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md", "docs/developing/*.md")
# Spelled in halves so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(a + b for a, b in (
    ("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("T", "BD"), ("not imple", "mented"), ("st", "ub"))) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:" + "work|home|farm|root" + r")/\w")
TICKED = re.compile(r"`([^`\s]+)`")
LINKED = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH_SUFFIX = re.compile(r"\.(hpp|cpp|cuh|cu|py|md|txt|json|cmake|in|png|svg)$")


def tracked(top):
    """Files of the working tree that git does not ignore; without git (a source archive), all files."""
    try:
        out = subprocess.run(["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             check=True, capture_output=True).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = [p.relative_to(top).as_posix() for p in top.rglob("*") if p.is_file()]
        names = [n for n in names if not n.startswith(("build", ".git/"))]
    return sorted(n for n in set(names) if (top / n).is_file())


def file_rules(name, text):
    lines = text.splitlines()
    suffix = pathlib.PurePosixPath(name).suffix
    script = bool(lines) and lines[0].startswith("#!")
    if suffix in SOURCES or script or name.endswith("CMakeLists.txt"):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            yield f"{name}: no SPDX line at the top"
    if suffix in CPP and len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines, more than {MAX_LINES}: one noun a file"
    if name == "LICENSE":
        return
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{name}:{number}: unfinished: {line.strip()}"
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine: {line.strip()}"


def crowded(files):
    """Folders with more files than a reader takes in at once."""
    counts = collections.Counter(pathlib.PurePosixPath(name).parent.as_posix() for name in files)
    for place, count in sorted(counts.items()):
        if count > MAX_FILES and not any(place == c or place.startswith(c + "/") for c in COLLECTIONS):
            yield f"{place}: {count} files, more than {MAX_FILES}: folders within say what belongs together"


def looks_like_path(token, roots):
    if token.startswith(("-", "$", "http:", "https:", "build/", "/")) or "::" in token or "(" in token or "=" in token:
        return False
    token = token.rstrip("/")
    return token.split("/")[0] in roots or ("/" in token and bool(PATH_SUFFIX.search(token)))


def document_paths(name, text, files):
    """Every path a document names in backticks or links; <name> and * stand for anything, but for something."""
    dirs = {str(parent) for f in files for parent in pathlib.PurePosixPath(f).parents}
    roots = {f.split("/")[0] for f in files}
    outside_code = re.sub(r"```.*?```", "", text, flags=re.S)
    links = [t for t in LINKED.findall(outside_code) if not re.match(r"[a-z]+:", t)]
    here = pathlib.PurePosixPath(name).parent
    candidates = [(t, t) for t in TICKED.findall(outside_code) if looks_like_path(t, roots)]
    for target in links:
        parts = []
        for part in (here / target).parts:
            if part == ".." and parts:
                parts.pop()
            elif part != ".":
                parts.append(part)
        candidates.append((target, "/".join(parts)))
    for shown, path in candidates:
        pattern = re.sub(r"<[^>]*>", "*", path.rstrip("/"))
        # Headers are named without their root, those of a backend also from its own folder on.
        backends = ("backends/cpu/include/aft/cpu/", "backends/cuda/include/aft/cuda/")
        options = [root + pattern for root in ("", "include/", "include/aft/", "backends/cpu/include/", *backends)]
        if not any(fnmatch.fnmatchcase(f, o) for o in options for f in (*files, *dirs)):
            yield f"{name}: names {shown}, which is not in the tree"


def version_of(top):
    header = (top / "include/aft/core/version.hpp").read_text(encoding="utf-8")
    return ".".join(re.search(rf"AFT_VERSION_{part} +(\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def version_rules(top):
    """One version everywhere: the header's."""
    version = version_of(top)
    for name in ("vcpkg.json", "packaging/vcpkg/ports/aft/vcpkg.json"):
        if json.loads((top / name).read_text(encoding="utf-8")).get("version-semver") != version:
            yield f"{name}: its version is not {version}"
    if f"project('aft', 'cpp', version: '{version}'," not in (top / "meson.build").read_text(encoding="utf-8"):
        yield f"meson.build: its version is not {version}"
    if f"\nversion: {version}\n" not in (top / "CITATION.cff").read_text(encoding="utf-8"):
        yield f"CITATION.cff: its version is not {version}"
    if f"\n## {version}\n" not in (top / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md: has no section {version}"


def self_test():
    files = ["include/aft/ops/full.hpp", "scripts/test", "README.md", "docs/adr/0001-a.md"]
    assert not list(document_paths("README.md", "`scripts/test` `include/aft/ops/<name>.hpp` `aft::full`", files))
    assert not list(document_paths("docs/adr/0001-a.md", "[r](../../README.md)", files))
    assert list(document_paths("README.md", "`scripts/gone`", files))
    assert list(document_paths("README.md", "`include/aft/gone/<name>.hpp`", files))
    assert list(document_paths("README.md", "[x](docs/adr/0002-b.md)", files))
    assert list(file_rules("a.hpp", "int a;"))
    assert list(file_rules("a.md", "to be done: " + "TO" + "DO"))
    assert list(file_rules("a.md", "see /" + "work/x"))
    assert list(crowded([f"a/b/{i}.hpp" for i in range(MAX_FILES + 1)]))
    assert not list(crowded([f"a/{i % 2}/{i}.hpp" for i in range(2 * MAX_FILES)]))
    assert not list(crowded([f"docs/adr/{i}.md" for i in range(99)]))
    assert not list(file_rules("a.md", "a framework/x and build/" + "work/x"))


def main():
    self_test()
    top = pathlib.Path(sys.argv[1])
    files = tracked(top)
    found = [*version_rules(top), *crowded(files)]
    for name in files:
        try:
            text = (top / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += file_rules(name, text)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in DOCUMENTS):
            found += document_paths(name, text, files)
    print("\n".join(found) if found else f"{len(files)} files keep the house rules")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
