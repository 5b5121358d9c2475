# SPDX-License-Identifier: Apache-2.0
"""Reads PTX as nvcc writes it: a module of entries, each a list of statements with the lines they stand in."""

import bisect
import dataclasses
import re

LABEL = re.compile(r"([$\w]+)\s*:(?!:)")
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
SHARED = re.compile(r"(?:\.(?:extern|visible|weak)\s+)*\.shared\s+\.align\s+(\d+)\s+\.b8\s+([$\w]+)\[(\d*)\]")
PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([$\w]+)(?:\[(\d+)\])?")
ENTRY = re.compile(r"\.entry\s+([$\w]+)\s*\(")
# Of whole threads and registers, which the launch looks at, or of nothing that a result depends on.
DIRECTIVES = (".pragma", ".loc", ".file")


class ptx_error(Exception):
    """Something that this translator does not know, with its line."""


@dataclasses.dataclass
class instruction:
    """`guard` is the predicate before it, with its '!'."""
    line: int
    guard: str
    opcode: list
    operands: list
    text: str


@dataclasses.dataclass
class symbol:
    name: str
    align: int
    size: int  # 0: as much as the launch says


@dataclasses.dataclass
class entry:
    """Statements are ("label", name), ("open",), ("close",), ("registers", class, names) or ("do", instruction)."""
    name: str
    line: int
    parameters: list
    threads: int
    statements: list
    shared: list


def without_comments(text):
    """The same text with blanks for comments, so that lines and places stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)


def split_operands(text):
    """At commas outside of braces and brackets."""
    parts, depth, begin = [], 0, 0
    for at, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return parts + [last] if last else parts


def read_instruction(text, line):
    guard = ""
    match = re.match(r"@(!?[%\w]+)\s+", text)
    rest = text
    if match:
        guard, rest = match.group(1), text[match.end():]
    opcode, _, operands = rest.partition(" ") if " " in rest.replace("\t", " ") else (rest, "", "")
    if "\t" in opcode:
        opcode, _, more = opcode.partition("\t")
        operands = more + " " + operands
    return instruction(line, guard, opcode.strip().split("."), split_operands(operands.strip()), " ".join(text.split()))


def register_names(text):
    """%r<4> stands for %r0 to %r3."""
    for part in text.split(","):
        part = part.strip()
        if match := re.fullmatch(r"(%?\w+)<(\d+)>", part):
            yield from (f"{match.group(1)}{i}" for i in range(int(match.group(2))))
        else:
            yield part


def read_statements(text, at, end, line_of):
    statements, shared = [], []
    while True:
        while at < end and text[at].isspace():
            at += 1
        if at >= end:
            return statements, shared
        if text[at] in "{}":
            statements.append(("open",) if text[at] == "{" else ("close",))
            at += 1
            continue
        if match := LABEL.match(text, at, end):
            statements.append(("label", match.group(1)))
            at = match.end()
            continue
        stop = text.index(";", at)
        statement = text[at:stop].strip()
        if match := REGISTERS.match(statement):
            statements.append(("registers", match.group(1), list(register_names(match.group(2)))))
        elif match := SHARED.match(statement):
            shared.append(symbol(match.group(2), int(match.group(1)), int(match.group(3) or 0)))
        elif statement and not statement.startswith(DIRECTIVES):
            if statement.startswith("."):
                raise ptx_error(f"line {line_of(at)}: unknown directive: {statement}")
            statements.append(("do", read_instruction(" ".join(statement.split()), line_of(at))))
        at = stop + 1


def read_parameters(text):
    parameters = []
    for match in PARAMETER.finditer(text):
        align, kind, name, count = match.groups()
        size = int(re.sub(r"\D", "", kind)) // 8
        parameters.append(symbol(name, int(align or size), int(count) if count else size))
    return parameters


def body_end(text, begin):
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, begin):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise ptx_error("a body without an end")


def read_module(text):
    """All entries of a file, and the architecture that it is for."""
    text = without_comments(text)
    starts = [match.start() for match in re.finditer("\n", text)]
    line_of = lambda at: bisect.bisect_left(starts, at) + 1
    target = re.search(r"\.target\s+(\w+)", text).group(1)
    entries, outer, last = [], [], 0
    for match in ENTRY.finditer(text):
        begin = text.index("{", match.end())
        head = text[match.end():begin]
        stop = body_end(text, begin)
        outer += SHARED.findall(text[last:match.start()])
        last = stop
        threads = re.search(r"\.maxntid\s+(\d+)", head)
        statements, shared = read_statements(text, begin + 1, stop, line_of)
        entries.append(entry(match.group(1), line_of(match.start()), read_parameters(head),
                             int(threads.group(1)) if threads else 1024, statements, shared))
    if ".func" in text:
        raise ptx_error("functions are not translated, only entries")
    module_shared = [symbol(name, int(align), int(size or 0)) for align, name, size in outer]
    for each in entries:
        used = " ".join(" ".join(s[1].operands) for s in each.statements if s[0] == "do")
        each.shared += [s for s in module_shared if re.search(re.escape(s.name) + r"(?![$\w])", used)]
        # The launch's part lies behind what the kernel has itself.
        each.shared.sort(key=lambda s: s.size == 0)
    return entries, target
