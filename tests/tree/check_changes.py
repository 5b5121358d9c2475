#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lists of CONTRIBUTING.md that say where a change goes, held to the tree.

check_changes.py <top>   names files that a list lacks, that it has without need, and that are not there
"""

import dataclasses
import fnmatch
import pathlib
import re
import sys

from check_tree import tracked

# Files that try something are not files that need to know of it: unit tests and their like stand outside the rules.
LIBRARY = ("include/", "backends/")
PYTHON = ("bindings/python/src/core/", "bindings/python/src/aft/")
HARNESS = ("tests/support/", "tests/fuzz/", "tests/golden/", "tests/isa_mix/", "tests/lint/", "tests/macros/",
           "tests/fast_math/")
TOOLS = ("scripts/", "cmake/", "CMakePresets.json", "bench/")


@dataclasses.dataclass
class Rule:
    """A list of CONTRIBUTING.md, and what the files in it mention."""
    heading: str
    scope: tuple
    patterns: tuple  # a file belongs to the list if it mentions one of them; a tuple within: all of these
    besides: tuple = ()  # in the list for a reason that no pattern sees


RULES = (
    Rule("Add an operator", (*LIBRARY, *PYTHON, *HARNESS, "scripts/", "bench/races/small.cpp"),
         (r"\bfamily::conv\b", r"enum class (family|op)\b", r"\bop::conv\b", r"ops/conv\.hpp", r"\breference::conv\b",
          r"reference/conv", r"\baft::conv\b", r'"conv"', r'"conv\.hpp"'),
         besides=("bindings/python/src/*", "include/aft/ops/*.hpp", "include/aft/reference/*.hpp", "include/aft/core/problem/problem.hpp",
                  "tests/lint/*.cpp")),
    Rule("Add a gate", (*LIBRARY, *PYTHON, *HARNESS, "scripts/"),
         ((r"\brelu\b", r"\bsilu\b", r"\btanh\b"), r"static_cast<(aft::)?gate>"), besides=("include/aft/aft.h",)),
    Rule("Add a bias kind", (*LIBRARY, *PYTHON, *HARNESS, "bench/harness/operands.hpp", "scripts/"),
         (r"bias_kind::(factorized|banded|generated)\b", r"\bgenerated_bias\b", r"enum class bias_kind\b", r"bias_form::factorized", r"\bfactorized_bias\b",
          r'"factorized", "', r"isinstance\(\w+, (aft\.)?Factorized\)"), besides=("include/aft/aft.h", "bindings/python/src/*")),
    Rule("Add an option", ("include/", "backends/compiled/", *PYTHON, *HARNESS, "scripts/"), (r"\bquery_lengths\b",),
         besides=("bindings/python/src/aft/torch/*",)),
    Rule("Add an instruction set",
         (*LIBRARY, "tests/isa_mix/", "tests/fast_math/", "tests/unoptimised/", "tests/support/engines/",
          "tests/unit/interface/build_info_test.cpp", "CMakePresets.json", "cmake/", "scripts/"),
         (r"__AVX512\w+__", r"isa_avx512", r"\bavx512(bw)?\b", r"x86-64-v4"),
         besides=("backends/cpu/include/aft/cpu/simd/*.hpp", "backends/cpu/include/aft/cpu/math/exp*.hpp",
                  "backends/compiled/levels/*.hpp", "backends/compiled/dispatch/*", "backends/compiled/CMakeLists.txt")),
    Rule("Add a bench race", ("bench/",), (r"\badd_local\b", r"\blocal32\b"),
         besides=("bench/*.cpp", "bench/*.hpp", "bench/CMakeLists.txt", "bench/report/peers.py")),
    Rule("Add an architecture of CUDA", (*LIBRARY, "tests/cuda/CMakeLists.txt", "tests/cuda/toolkit/check_kernels.py",
                                         "tests/gpu/CMakeLists.txt", "scripts/", "cmake/"),
         (r"\bsm_(80|90a|100)\b", r"\b90a\b", r"CUDA_ARCHITECTURES", r"__CUDA_ARCH_FEAT_")),
)
NAMED = re.compile(r"`([\w<>*?./-]*[/.][\w<>*?./-]*)`")


def section(text, heading):
    """The text between a heading and the next one."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    if match is None:
        raise SystemExit(f"CONTRIBUTING.md has no section {heading}")
    return match.group(1)


def mentions(rule, text):
    return any(all(re.search(p, text) for p in (pattern if isinstance(pattern, tuple) else (pattern,)))
               for pattern in rule.patterns)


def differences(rule, document, texts):
    """Lines for what a list lacks, has without need, or names though it is not there; `texts` are by file name."""
    listed = [re.sub(r"<[^>]*>", "*", name) for name in NAMED.findall(section(document, rule.heading))]
    folders = {str(parent) for name in texts for parent in pathlib.PurePosixPath(name).parents}
    where = f"CONTRIBUTING.md, {rule.heading}:"
    for pattern in listed:
        if not any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for name in (*texts, *folders)):
            yield f"{where} {pattern} is not in the tree"
    for name, text in texts.items():
        inside = name.startswith(rule.scope)
        named = any(fnmatch.fnmatchcase(name, pattern) for pattern in listed)
        if inside and not named and mentions(rule, text):
            yield f"{where} missing: {name}"
        if inside and named and not mentions(rule, text) and not any(
                fnmatch.fnmatchcase(name, pattern) for pattern in rule.besides):
            yield f"{where} extra: {name} mentions nothing of it"


def self_test():
    rule = Rule("Add a thing", ("include/",), (r"\bthing::last\b",))
    texts = {"include/a.hpp": "case thing::last:", "include/b.hpp": "int x;", "tests/t.cpp": "thing::last"}
    document = "# Top\n\n## Add a thing\n\n1. `include/a.hpp`: a case.\n\n## Other\n\n`include/b.hpp`\n"
    assert not list(differences(rule, document, texts))
    assert list(differences(rule, document, {**texts, "include/c.hpp": "thing::last"})) == [
        "CONTRIBUTING.md, Add a thing: missing: include/c.hpp"]
    assert len(list(differences(rule, document.replace("include/a.hpp", "include/gone.hpp"), texts))) == 2
    assert len(list(differences(rule, document.replace("a case", "and `include/b.hpp`"), texts))) == 1


def main():
    self_test()
    top = pathlib.Path(sys.argv[1])
    texts = {}
    for name in tracked(top):
        if not name.startswith(("tests/fuzz/corpus/", "bench/results/")):
            try:
                texts[name] = (top / name).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                texts[name] = ""
    document = texts["CONTRIBUTING.md"]
    found = [line for rule in RULES for line in differences(rule, document, texts)]
    print("\n".join(found) if found else f"{len(RULES)} lists name what the tree has")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
