# SPDX-License-Identifier: Apache-2.0
"""One entry as one C++ function: registers are locals, branches are gotos, predicates are ifs."""

import re

import scalars
import spaces
import together
from kinds import CPP, bits_of, scope, variable
from source import ptx_error, read_instruction

# Bytes of registers that an entry may have: where they are not optimised away they lie on the stack of a fiber, which
# has 64 KiB, beside what the machine's own functions take.
MOST_REGISTERS = 48 * 1024
EMITTERS = {**scalars.EMITTERS, **spaces.EMITTERS, **together.EMITTERS}


def label(name):
    return "l_" + re.sub(r"\W", "_", name)


def shared_layout(entry):
    """Where each symbol of shared memory begins, in bytes; how many have a size; whether there is one without."""
    at, places, dynamic = 0, {}, False
    for each in entry.shared:
        at = (at + each.align - 1) // each.align * each.align
        places[each.name] = at
        at += each.size
        dynamic = dynamic or each.size == 0
    return places, at, dynamic


def parameter_layout(entry):
    at, places = 0, []
    for each in entry.parameters:
        at = (at + each.align - 1) // each.align * each.align
        places.append((each.name, at, each.size))
        at += each.size
    return places, at


def symbols_of(entry):
    places, _, _ = shared_layout(entry)
    found = {name: f"shared_memory::begin() + {at}u" for name, at in places.items()}
    parameters, _ = parameter_layout(entry)
    found.update({name: f"parameters::begin() + {at}u" for name, at, _ in parameters})
    return found


def sums_under_way(entry):
    """Registers that may hold sums of a warpgroup's product: those that it names, and whatever is moved to or from
    them."""
    moves, found = [], set()
    for kind, *rest in entry.statements:
        if kind != "do":
            continue
        if rest[0].opcode[:2] == ["wgmma", "mma_async"]:
            found.update(spaces.elements(rest[0].operands[0]))
        if rest[0].opcode == ["mov", "f32"] and rest[0].operands[1].startswith("%"):
            moves.append(rest[0].operands)
    if not found:
        return []
    while True:
        more = {to for to, source in moves if source in found} - found
        if not more:
            return sorted(found)
        found |= more


def emit_plain(s, i, sums):
    if i.opcode[0] == "bra":
        return [f"goto {label(i.operands[0])};"]
    if i.opcode in (["ret"], ["exit"]):
        return ["return;"]
    if i.opcode[0] not in EMITTERS:
        raise ptx_error("unknown instruction")
    lines = EMITTERS[i.opcode[0]](s, i)
    settled = " ".join(f"settle({variable(name)});" for name in sums)
    return [settled if line == "settle_sums" else line for line in lines]


def emit(s, i, sums):
    try:
        lines = emit_plain(s, i, sums)
    except ptx_error as error:
        raise ptx_error(f"line {i.line}: {i.text}: {error}") from None
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ptx_error(f"line {i.line}: {i.text}: not understood ({error!r})") from None
    if i.guard:
        negated = "!" if i.guard.startswith("!") else ""
        condition = negated + s.read(i.guard.lstrip("!"), "pred")
        lines = [f"if ({condition}) {{", *lines, "}"]
    return lines


def emit_with_faults(s, i, sums, faults):
    """Faults stand beside the instruction, and the program chooses one while it runs."""
    lines = emit(s, i, sums)
    for number, changed in faults.get(i.line, ()):
        other = emit(s, read_instruction(changed, i.line), sums) if changed else []
        lines = [f"if (planted({number})) {{", *other, "} else {", *lines, "}"]
    return lines


def function_of(entry, name, faults):
    """A C++ function without arguments; `faults`: lists of (number, instruction) by line."""
    s = scope(symbols_of(entry))
    sums = sums_under_way(entry)
    lines, size = [f"void {name}() {{"], 0
    for statement in entry.statements:
        if statement[0] == "registers":
            _, kind, names = statement
            s.declare(kind, names)
            size += len(names) * max(1, bits_of(kind) // 8)
            lines += [f"{CPP[kind]} {variable(each)};" for each in names]
        elif statement[0] == "label":
            lines.append(f"{label(statement[1])}:;")
        elif statement[0] == "open":
            s.levels.append({})
            lines.append("{")
        elif statement[0] == "close":
            s.levels.pop()
            lines.append("}")
        else:
            lines += emit_with_faults(s, statement[1], sums, faults)
    if size > MOST_REGISTERS:
        raise ptx_error(f"{entry.name}: {size} bytes of registers, more than a thread's stack holds")
    return lines + ["}"]
