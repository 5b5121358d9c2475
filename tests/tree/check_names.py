#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the library to docs/glossary.md: none of the words that it replaces, and no name of two things in a backend."""

import pathlib
import re
import sys

ROOTS = ("include", "backends")
SUFFIXES = {".hpp", ".cuh"}
NAMESPACE = re.compile(r"^(?:inline )?namespace |^}  // namespace|^#|^//")
TYPE = re.compile(r"^(?:struct|class|enum class|union)\s+(?:alignas\(\d+\)\s+)?(\w+)(?!.*;$)")
FUNCTION = re.compile(r"^(?:\[\[[^\]]*\]\]\s*|template\s*<.*>\s*|inline\s+|constexpr\s+|static\s+|__\w+__\s+|AFT_\w+\s+)*"
                      r"[\w:<>,*& ]+?[\s*&](\w+)\((?!.*\)\s*;\s*$)")
# One name for all types of an argument, in files of their own by design.
OVERLOADS = {"prefetch", "main", "merge", "carried"}


def banned(glossary):
    """The last column of the tables."""
    words = set()
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and cells[0] not in ("term", "---"):
            words |= {word.strip() for word in cells[4].split(",") if word.strip()}
    return words


def uses(name, text, words):
    """Places where an identifier, or a comment, has one of the words."""
    for number, line in enumerate(text.splitlines(), 1):
        for identifier in re.findall(r"[A-Za-z_]\w*", line):
            found = words & set(re.split(r"_+", identifier.lower()))
            if found:
                yield f"{name}:{number}: \"{identifier}\": the glossary has another word for {', '.join(sorted(found))}"


def definitions(text):
    """Types and functions of a header at the level of its namespace."""
    for line in text.splitlines():
        if not line or line[0].isspace() or NAMESPACE.match(line):
            continue
        match = TYPE.match(line)
        if match and "<" not in line.split(match.group(1), 1)[1].split("{")[0].split(":")[0]:
            yield match.group(1)
            continue
        match = FUNCTION.match(line)
        if match and match.group(1) not in OVERLOADS:
            yield match.group(1)


def twice(headers):
    """Names that two headers of a backend define. Overloads in one header are one thing."""
    seen = {}
    for name, text in sorted(headers.items()):
        for defined in set(definitions(text)):
            if seen.setdefault(defined, name) != name:
                yield f"{name}: {defined} is also in {seen[defined]}"


def self_test():
    table = "| term | meaning | symbol | elsewhere | not |\n|---|---|---|---|---|\n| workspace | x | | y | desk, desks |\n"
    words = banned(table)
    assert words == {"desk", "desks"}, words
    assert list(uses("a.hpp", "int backward_desk = 1;", words))
    assert list(uses("a.hpp", "int a;  // a desk of its own", words))
    assert not list(uses("a.hpp", "int desktop = 1;  // the workspace", words))
    one = "template <class C>\ninline void pack(const C* from) {\n}\nstruct plan {\n"
    assert list(twice({"a.hpp": one, "b.hpp": "struct plan {\n"}))
    assert list(twice({"a.hpp": one, "b.hpp": "[[gnu::noinline]] void pack(int) {\n"}))
    assert not list(twice({"a.hpp": one + one, "b.hpp": "struct plan;\n"}))


def main():
    self_test()
    top = pathlib.Path(sys.argv[1])
    words = banned((top / "docs" / "glossary.md").read_text(encoding="utf-8"))
    if not words:
        sys.exit("docs/glossary.md replaces no word")
    found, count = [], 0
    for root in ROOTS:
        texts = {path.relative_to(top).as_posix(): path.read_text(encoding="utf-8")
                 for path in sorted((top / root).rglob("*")) if path.suffix in SUFFIXES}
        count += len(texts)
        for name, text in texts.items():
            found += uses(name, text, words)
        for backend in {name.split("/")[1] for name in texts} if root == "backends" else ():
            found += twice({name: text for name, text in texts.items() if name.split("/")[1] == backend})
    print("\n".join(found) or f"{count} headers speak the glossary's words, {len(words)} others do not occur")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
