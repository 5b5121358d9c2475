#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a header includes something that its layer, or its folder in the layer, must not see.

core <- math <- reference; ops see core and math; a backend sees core and math, never ops and never another backend;
only aft.hpp sees both sides. The order is what lets a backend be added or replaced without touching an operator. Within
a layer the order of the folders says where a reader may begin: what a folder does is known without those after it.
"""

import pathlib
import posixpath
import re
import sys

ALLOWED = {
    "core": {"core"},
    "math": {"core", "math"},
    "reference": {"core", "math", "reference"},
    "ops": {"core", "math", "ops"},
    "interop": {"core", "interop"},
    "cpu": {"core", "math", "cpu"},
    "cuda": {"core", "math", "cuda"},
    "compiled": {"core", "math", "compiled"},
    "distributed": {"core", "math", "distributed"},
}


def in_order(folders):
    """Each folder sees those before it; "." are the files beside the folders."""
    names = folders.split()
    return {name: set(names[:i]) for i, name in enumerate(names)}


# Layer -> folder -> the folders that it may see besides itself. A layer without an entry has no order yet.
FOLDERS = {
    "core": in_order(". views stream problem checks"),
    "cpu": in_order("simd runtime math tensor softmax gemm epilogue bias_gradient window pairs scan scan/backward "
                    "stencil stencil/grouped stencil/backward stencil/calls sparse packed stream ."),
    "distributed": in_order("ranks memory cut exchange call ."),
    "cuda": in_order("device math tensor fold scan sparse bias_gradient plan split_mma bf16_gemm maps stream launch ."),
}
# The engines of the CPU do not know each other: what two of them need lies in the folders before both.
for _folder, _seen in FOLDERS["cpu"].items():
    if _folder.startswith("scan"):
        _seen -= set("softmax gemm epilogue bias_gradient window pairs".split())
    if _folder.startswith("stencil"):
        _seen -= set("gemm epilogue bias_gradient window pairs scan scan/backward".split())
    if _folder in ("sparse", "stream"):
        _seen -= set("gemm epilogue bias_gradient window pairs scan scan/backward stencil stencil/grouped "
                     "stencil/backward stencil/calls sparse".split())
# The examples: what they share, then each example's own folders, which see all of the shared ones. "." is the program.
EXAMPLES = {
    "common": in_order("support layers mixers blocks training report byte_lm"),
    "vision": in_order("data model training report pixels ."),
    "char_lm": in_order("data training report ranks ."),
    "small": in_order("."),
}
# Third-party headers that exactly one file may know, so that one file changes when they do.
SINGLE_HOME = {"omp.h": "aft/cpu/runtime/parallel.hpp", "xsimd/": "aft/cpu/simd/arch.hpp",
               "mpi.h": "aft/distributed/mpi.hpp", "nccl.h": "aft/distributed/nccl.hpp"}
# An executor that is made of another stands on the whole library, as its users do.
ON_TOP = ("aft/distributed/split.hpp",)
# What is included where nothing may follow; it does not exist on purpose.
STOP = "nothing of aft is compiled, see the error above"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
BESIDE = re.compile(r"\.\./\.\./backends/\w+/include/(.+)")
ROOTS = ("include", "backends/cpu/include", "backends/compiled/include", "backends/cuda/include")
SUFFIXES = {".hpp", ".cuh", ".h"}
# What users and tests include.
ENTRIES = ("aft/aft.hpp", "aft/aft.h", "aft/reference/reference.hpp", "aft/distributed/in_process.hpp",
           "aft/distributed/mpi.hpp", "aft/distributed/nccl.hpp")


def layer(name):
    """The layer of a header as it is included ("aft/core/x.hpp" -> "core"); the umbrella has none."""
    parts = name.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "aft" else None


def folder(name):
    """The folder of a header in its layer ("aft/cuda/fold/x.cuh" -> "fold", "aft/cuda/x.hpp" -> ".")."""
    return "/".join(name.split("/")[2:-1]) or "."


def order_violation(name, target):
    """What is wrong with one header of a layer including another of the same."""
    allowed = FOLDERS.get(layer(name))
    if allowed is None:
        return None
    for header in (name, target):
        if folder(header) not in allowed:
            return f"{folder(header)}/ has no place in the order of {layer(name)}/"
    if folder(target) != folder(name) and folder(target) not in allowed[folder(name)]:
        return f"{folder(name)}/ must not see {target}"
    return None


def violations(name, text, exists):
    """Complaints about one header; `exists` says whether a quoted path names a header of the project."""
    own = layer(name)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        if target == STOP:
            continue
        # Before installation the umbrella finds the backends in folders of their own.
        if name == "aft/aft.hpp" and (beside := BESIDE.match(target)):
            target = beside.group(1)
            if not exists(target):
                yield f"{name}:{number}: \"{match.group(2)}\" is not a header of this project"
            continue
        if quote == '"':
            joined = pathlib.PurePosixPath(name).parent / target
            parts = []
            for part in joined.parts:
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            target = "/".join(parts)
            if not exists(target):
                yield f"{name}:{number}: \"{match.group(2)}\" is not a header of this project"
                continue
        for prefix, home in SINGLE_HOME.items():
            if target.startswith(prefix) and name != home:
                yield f"{name}:{number}: only {home} includes <{target}>"
        seen = layer(target)
        if target == "aft/aft.hpp" and name not in ON_TOP:
            yield f"{name}:{number}: aft.hpp is for users, a layer names what it needs"
        elif seen is not None and own is not None:
            if own not in ALLOWED:
                yield f"{name}:{number}: {own}/ is not a known layer"
            elif seen not in ALLOWED[own]:
                yield f"{name}:{number}: {own} must not see {target}"
            elif seen == own and (wrong := order_violation(name, target)):
                yield f"{name}:{number}: {wrong}"


def example_violations(name, text, exists):
    """Complaints about one source of the examples, which include each other by their paths in examples/."""
    own, _, rest = name.partition("/")
    own_folder = posixpath.dirname(rest) or "."
    if own_folder not in EXAMPLES.get(own, {}):
        yield f"examples/{name}: {own}/{own_folder} has no place in the order of the examples"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match or match.group(1) != '"':
            continue
        seen, _, rest = match.group(2).partition("/")
        seen_folder = posixpath.dirname(rest) or "."
        if not exists(match.group(2)):
            yield f"examples/{name}:{number}: \"{match.group(2)}\" is not a file of the examples"
        elif seen not in (own, "common"):
            yield f"examples/{name}:{number}: {own}/ must not see {match.group(2)}"
        elif seen == own and seen_folder != own_folder and seen_folder not in EXAMPLES[own][own_folder]:
            yield f"examples/{name}:{number}: {own_folder}/ must not see {match.group(2)}"


def included(name, text, headers):
    """The project's headers that one header includes."""
    for match in filter(None, map(INCLUDE.match, text.splitlines())):
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), match.group(2)))
        for target in (match.group(2), beside):
            if target in headers:
                yield target


def unreachable(headers, entries):
    """Headers that none of the entries leads to: nobody's call compiles them."""
    seen, todo = set(), list(entries)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += included(name, headers[name], headers)
    return sorted(set(headers) - seen)


def unknown_in_comments(name, text, known):
    """Headers of the project that a comment sends its reader to and that are not there."""
    for number, line in enumerate(text.splitlines(), 1):
        if "//" not in line:
            continue
        for target in re.findall(r"[\w/]+\.(?:hpp|cuh)\b", line.split("//", 1)[1]):
            if not any(k == target or k.endswith("/" + target) for k in known) and "xsimd" not in target:
                yield f"{name}:{number}: names {target}, which does not exist"


def self_test():
    """The check itself must see what it is there for."""
    tree = {"aft/x/backend.hpp": '#include "a.hpp"', "aft/x/a.hpp": "#include <aft/x/b.hpp>",
            "aft/x/b.hpp": '#include "r/e.hpp"', "aft/x/r/e.hpp": '#include "../f.hpp"', "aft/x/f.hpp": "",
            "aft/x/c.hpp": '#include "a.hpp"', "aft/y/d.hpp": ""}
    assert unreachable(tree, ["aft/x/backend.hpp"]) == ["aft/x/c.hpp", "aft/y/d.hpp"]
    assert unreachable(tree, ["aft/x/backend.hpp", "aft/x/c.hpp", "aft/y/d.hpp"]) == []
    assert list(unknown_in_comments("a.hpp", "int a;  // see gone.hpp", {"aft/x/a.hpp"}))
    assert not list(unknown_in_comments("a.hpp", "// a.hpp and x/a.hpp\nint gone.hpp;", {"aft/x/a.hpp"}))

    def bad(name, line):
        return list(violations(name, line, lambda target: True))
    assert bad("aft/core/a.hpp", "#include <aft/math/b.hpp>")
    assert bad("aft/core/a.hpp", '#include "../math/b.hpp"')
    assert bad("aft/cpu/a.hpp", "#include <aft/ops/full.hpp>")
    assert bad("aft/cpu/a.hpp", "#  include <aft/cuda/full.hpp>")
    assert bad("aft/ops/a.hpp", "#include <aft/cpu/fold.hpp>")
    assert bad("aft/math/a.hpp", "#include <aft/aft.hpp>")
    assert bad("aft/cpu/fold.hpp", "#include <omp.h>")
    assert not bad("aft/cpu/runtime/parallel.hpp", "#include <omp.h>")
    assert not bad("aft/ops/full.hpp", '#include "../core/problem/problem.hpp"')
    assert not bad("aft/aft.hpp", "#include <aft/cpu/fold.hpp>")
    assert not bad("aft/core/a.hpp", "// #include <aft/math/b.hpp>")
    # The order of folders, in both directions, with either spelling, and a folder that nobody has given a place.
    assert bad("aft/cuda/math/a.cuh", '#include "../fold/b.cuh"')
    assert bad("aft/cuda/fold/a.cuh", "#include <aft/cuda/launch/b.cuh>")
    assert bad("aft/cuda/fold/a.cuh", '#include "../kernels.cuh"')
    assert bad("aft/core/config.hpp", '#include "views/any_view.hpp"')
    assert bad("aft/core/views/a.hpp", "#include <aft/core/checks/votes.hpp>")
    assert bad("aft/cuda/new/a.cuh", '#include "b.cuh"')
    assert bad("aft/cuda/launch/a.cuh", '#include "../fold/new/b.cuh"')
    assert not bad("aft/cuda/fold/a.cuh", '#include "../math/b.cuh"')
    assert not bad("aft/cuda/fold/a.cuh", '#include "b.cuh"')
    assert not bad("aft/cuda/kernels.cuh", '#include "launch/b.cuh"')
    assert not bad("aft/core/checks/a.hpp", '#include "../config.hpp"')

    def bad_example(name, line):
        return list(example_violations(name, line, lambda target: target != "common/layers/gone.hpp"))
    assert bad_example("common/layers/a.hpp", '#include "common/mixers/b.hpp"')
    assert bad_example("common/layers/a.hpp", '#include "char_lm/data/b.hpp"')
    assert bad_example("char_lm/data/a.hpp", '#include "char_lm/training/b.hpp"')
    assert bad_example("char_lm/main.cpp", '#include "other/data/b.hpp"')
    assert bad_example("char_lm/new/a.hpp", "")
    assert bad_example("char_lm/main.cpp", '#include "common/layers/gone.hpp"')
    assert not bad_example("char_lm/data/a.cpp", '#include "char_lm/data/a.hpp"')
    assert not bad_example("char_lm/data/a.hpp", '#include "common/report/b.hpp"')
    assert not bad_example("char_lm/main.cpp", '#include "char_lm/report/b.hpp"')


def main():
    self_test()
    top = pathlib.Path(sys.argv[1])
    headers = {}
    for root in ROOTS:
        base = top / root
        for path in sorted(base.rglob("*")):
            if path.suffix in SUFFIXES:
                headers[path.relative_to(base).as_posix()] = path
    texts = {name: path.read_text(encoding="utf-8") for name, path in headers.items()}
    known = set(texts) | {path.relative_to(top).as_posix() for path in (top / "tests").rglob("*.hpp")}
    found = []
    for name, text in texts.items():
        found += violations(name, text, headers.__contains__)
        found += unknown_in_comments(name, text, known)
    examples = {path.relative_to(top / "examples").as_posix(): path.read_text(encoding="utf-8")
                for path in sorted((top / "examples").rglob("*.[hc]pp"))}
    for name, text in examples.items():
        found += example_violations(name, text, examples.__contains__)
    found += [f"{name}: neither {' nor '.join(ENTRIES)} leads here" for name in unreachable(texts, ENTRIES)]
    print("\n".join(found) if found else f"{len(headers)} headers and {len(examples)} files of the examples follow the "
          "include order")
    if not headers or not examples:
        sys.exit("no headers or no examples found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
