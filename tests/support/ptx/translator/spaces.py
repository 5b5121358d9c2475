# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and atomic operations: which space, how many elements, and where."""

import re

from kinds import CPP, bits_of
from source import ptx_error

# Without a space an address is generic; no kernel here makes one of another space than global memory.
SPACES = {"global": "global_memory", "shared": "shared_memory", "param": "parameters", "": "global_memory"}


def address(s, operand):
    """[register + offset], or a symbol's."""
    match = re.fullmatch(r"\[\s*([$%\w.]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
    if not match:
        raise ptx_error(f"unknown address {operand}")
    base, offset = match.groups()
    kind = s.kind_of(base)
    value = s.read(base, kind if kind in ("b32", "b64") else "u64")
    if not offset or int(offset) == 0:
        return f"std::uint64_t({value})"
    # Offsets of 32-bit addresses wrap as they do.
    wide = "std::uint32_t" if kind == "b32" else "std::uint64_t"
    return f"std::uint64_t({wide}({value} + {wide}({int(offset)}ll)))"


def elements(operand):
    return [p.strip() for p in operand.strip("{}").split(",")]


def forms(i):
    mods = i.opcode[1:-1]
    space = next((m for m in mods if m in SPACES), "")
    count = next((int(m[1:]) for m in mods if m in ("v2", "v4")), 1)
    rest = [m for m in mods if m != space and m not in ("v2", "v4", "nc")]
    if rest:
        raise ptx_error(f"unknown modifier {rest[0]}")
    return SPACES[space], count, i.opcode[-1]


def load(s, i):
    space, count, kind = forms(i)
    names = elements(i.operands[0])
    if len(names) != count:
        raise ptx_error("another number of registers than the vector has elements")
    value = f"{space}::load<{CPP[kind]}, {count}>({address(s, i.operands[1])}, {i.line})"
    writes = " ".join(s.write(name, kind, f"loaded[{n}]") for n, name in enumerate(names))
    return ["{ const auto loaded = " + value + "; " + writes + " }"]


def store(s, i):
    space, count, kind = forms(i)
    names = elements(i.operands[1])
    if len(names) != count or space == "parameters":
        raise ptx_error("an unknown store")
    values = []
    for name in names:
        own = s.kind_of(name)
        narrow = own is not None and bits_of(own) > bits_of(kind)
        # A register may be wider than what is stored of it.
        values.append(f"static_cast<{CPP[kind]}>({s.read(name, own)})" if narrow else s.read(name, kind))
    return [f"{space}::store<{CPP[kind]}, {count}>({address(s, i.operands[0])}, {{{', '.join(values)}}}, {i.line});"]


def atomic(s, i):
    _, space, operation, kind = i.opcode
    if space != "global" or operation not in ("max", "min", "add"):
        raise ptx_error("unknown atomic operation")
    number = s.read(i.operands[2], kind)
    combined = f"old[0] + {number}" if operation == "add" else f"{operation}imum<{CPP[kind]}>(old[0], {number})"
    at = address(s, i.operands[1])
    return [f"{{ const auto old = global_memory::load<{CPP[kind]}, 1>({at}, {i.line}); "
            f"global_memory::store<{CPP[kind]}, 1>({at}, {{{combined}}}, {i.line}); "
            + s.write(i.operands[0], kind, "old[0]") + " }"]


EMITTERS = {"ld": load, "st": store, "atom": atomic}
