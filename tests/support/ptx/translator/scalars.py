# SPDX-License-Identifier: Apache-2.0
"""Instructions that a thread does on its own registers. Each gives C++ statements; what has no entry is an error."""

import re

from kinds import CPP, bits_of, is_float, is_signed, unsigned
from source import ptx_error

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
# A predicate's operations are those of bool, whose ~ would be a number.
LOGICAL = {"and": "&&", "or": "||", "xor": "!="}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
               "hs": ">="}
# True as well where an operand is NaN: the negation of the opposite.
UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}


def two_of(s, i, kind):
    return s.read(i.operands[1], kind), s.read(i.operands[2], kind)


def wrapped(kind, a, operator, b):
    """Integer arithmetic that wraps, in a type wide enough that C++ promotes it to nothing signed."""
    wide = "std::uint64_t" if bits_of(kind) == 64 else "std::uint32_t"
    return f"static_cast<{CPP[kind]}>(static_cast<{wide}>({a}) {operator} static_cast<{wide}>({b}))"


def arithmetic(s, i):
    """add, sub, mul of floating numbers to nearest, or of integers, low, high or wide."""
    name, *mods = i.opcode
    kind = mods.pop()
    a, b = two_of(s, i, kind)
    if is_float(kind):
        if mods not in ([], ["rn"]):
            raise ptx_error("only rounding to nearest")
        return [s.write(i.operands[0], kind, f"{a} {ARITHMETIC[name]} {b}")]
    if name == "mul":
        if mods == ["wide"]:
            wide = kind[0] + str(2 * bits_of(kind))
            return [s.write(i.operands[0], wide, f"static_cast<{CPP[wide]}>({a}) * static_cast<{CPP[wide]}>({b})")]
        if mods == ["hi"]:
            return [s.write(i.operands[0], kind, f"high_product<{CPP[kind]}>({a}, {b})")]
        if mods != ["lo"]:
            raise ptx_error("unknown product")
    elif mods:
        raise ptx_error("unknown modifier")
    return [s.write(i.operands[0], kind, wrapped(kind, a, ARITHMETIC[name], b))]


def multiply_add(s, i):
    name, *mods, kind = i.opcode
    a, b, c = (s.read(i.operands[n], kind) for n in (1, 2, 3))
    if name == "fma" and mods == ["rn"] and is_float(kind):
        return [s.write(i.operands[0], kind, f"aft::emulator::fused({a}, {b}, {c})")]
    if name == "mad" and mods == ["lo"] and not is_float(kind):
        return [s.write(i.operands[0], kind, wrapped(kind, wrapped(kind, a, "*", b), "+", c))]
    if name == "mad" and mods == ["wide"]:
        wide = kind[0] + str(2 * bits_of(kind))
        product = f"static_cast<{CPP[wide]}>({a}) * static_cast<{CPP[wide]}>({b})"
        return [s.write(i.operands[0], wide, wrapped(wide, product, "+", s.read(i.operands[3], wide)))]
    raise ptx_error("unknown form")


def divide(s, i):
    *head, kind = i.opcode
    a, b = two_of(s, i, kind)
    if is_float(kind):
        forms = {"div.rn": f"{a} / {b}", "div.approx": f"quotient_approx({a}, {b})", "div.full": f"quotient_approx({a}, {b})"}
        form = ".".join(head)
        if form not in forms or (kind == "f64" and form != "div.rn"):
            raise ptx_error("unknown quotient")
        return [s.write(i.operands[0], kind, forms[form])]
    if len(head) > 1:
        raise ptx_error("unknown quotient")
    operation = "quotient_of" if head[0] == "div" else "remainder_of"
    return [s.write(i.operands[0], kind, f"{operation}<{CPP[kind]}>({a}, {b}, {i.line})")]


def smaller_larger(s, i):
    name, kind = i.opcode
    a, b = two_of(s, i, kind)
    return [s.write(i.operands[0], kind, f"{name}imum<{CPP[kind]}>({a}, {b})")]


def one_operand(s, i):
    """neg, abs, not, and counts of bits."""
    name, *mods, kind = i.opcode
    a = s.read(i.operands[1], kind)
    if name == "not" and not mods:
        return [s.write(i.operands[0], kind, f"!{a}" if kind == "pred" else f"static_cast<{CPP[kind]}>(~{a})")]
    if name in ("neg", "abs") and not mods:
        if is_float(kind):
            return [s.write(i.operands[0], kind, f"-{a}" if name == "neg" else f"std::fabs({a})")]
        return [s.write(i.operands[0], kind, f"{name}_of<{CPP[kind]}>({a})")]
    counts = {("brev",): f"reversed({a})", ("clz",): f"std::countl_zero({a})", ("popc",): f"std::popcount({a})",
              ("bfind", "shiftamt"): f"leading_shift({a})"}
    key = (name, *mods)
    if key not in counts or is_float(kind):
        raise ptx_error("unknown form")
    return [s.write(i.operands[0], kind if name == "brev" else "u32", counts[key])]


def bitwise(s, i):
    name, kind = i.opcode
    a, b = two_of(s, i, kind)
    if kind == "pred":
        return [s.write(i.operands[0], kind, f"{a} {LOGICAL[name]} {b}")]
    return [s.write(i.operands[0], kind, f"static_cast<{CPP[kind]}>({a} {BITWISE[name]} {b})")]


def shift(s, i):
    """By more than there are bits gives what so many single shifts would."""
    name, kind = i.opcode
    return [s.write(i.operands[0], kind,
                    f"shifted_{'left' if name == 'shl' else 'right'}<{CPP[kind]}>({s.read(i.operands[1], kind)}, "
                    f"{s.read(i.operands[2], 'u32')})")]


def insert_bits(s, i):
    """bfi: of the first operand into the second, at a place, so many."""
    name, kind = i.opcode
    a, b = (s.read(i.operands[n], kind) for n in (1, 2))
    at, count = (s.read(i.operands[n], "u32") for n in (3, 4))
    return [s.write(i.operands[0], kind, f"with_bits<{CPP[kind]}>({a}, {b}, {at}, {count})")]


def compare(s, i):
    _, test, *mods, kind = i.opcode
    if mods:
        raise ptx_error("only plain comparisons")
    a, b = two_of(s, i, kind)
    if test in ("num", "nan") and is_float(kind):
        value = f"{'' if test == 'nan' else '!'}(std::isnan({a}) || std::isnan({b}))"
    elif test in UNORDERED and is_float(kind):
        value = f"!({a} {UNORDERED[test]} {b})"
        if test in ("equ", "neu"):
            value = f"!({a} < {b} || {a} > {b})" if test == "equ" else f"{a} != {b}"
    elif test == "ne" and is_float(kind):
        value = f"({a} < {b} || {a} > {b})"  # an ordered comparison
    elif test in COMPARISONS and (test not in ("lo", "ls", "hi", "hs") or kind.startswith("u")):
        value = f"{a} {COMPARISONS[test]} {b}"
    else:
        raise ptx_error("unknown comparison")
    return [s.write(i.operands[0], "pred", value)]


def select(s, i):
    _, kind = i.opcode
    a, b = two_of(s, i, kind)
    return [s.write(i.operands[0], kind, f"{s.read(i.operands[3], 'pred')} ? {a} : {b}")]


def function(s, i):
    """Functions that hardware approximates, and those that it rounds right."""
    form = ".".join(i.opcode[:-1])
    kind = i.opcode[-1]
    a = s.read(i.operands[1], kind)
    known = {("ex2.approx", "f32"): f"exp2_approx({a})", ("lg2.approx", "f32"): f"log2_approx({a})",
             ("rcp.approx.ftz", "f64"): f"reciprocal_approx({a})", ("rcp.approx", "f32"): f"quotient_approx(1.0f, {a})",
             ("rcp.rn", "f32"): f"1.0f / {a}", ("rcp.rn", "f64"): f"1.0 / {a}",
             ("sqrt.rn", "f32"): f"std::sqrt({a})", ("sqrt.rn", "f64"): f"std::sqrt({a})"}
    if (form, kind) not in known:
        raise ptx_error("unknown function")
    return [s.write(i.operands[0], kind, known[form, kind])]


def convert(s, i):
    _, *mods, to, source = i.opcode
    a = s.read(i.operands[1], source)
    mode = ".".join(mods)
    if to == "tf32" and source == "f32" and mode == "rna":
        return [s.write(i.operands[0], "b32", f"to_tf32({a})")]
    if not is_float(to) and not is_float(source) and "f" not in to + source:
        if mode:
            raise ptx_error("unknown conversion")
        return [s.write(i.operands[0], to, f"static_cast<{CPP[to]}>({a})")]
    known = {("rn", "f16", "f32"): f"to_half({a})", ("rn", "bf16", "f32"): f"to_bfloat16({a})",
             ("", "f32", "f16"): f"from_half({a})", ("", "f64", "f32"): f"static_cast<double>({a})",
             ("rn", "f32", "f64"): f"static_cast<float>({a})"}
    if (mode, to, source) in known:
        return [s.write(i.operands[0], to, known[mode, to, source])]
    if mode == "rn" and is_float(to) and not is_float(source) and re.fullmatch(r"[su]\d+", source):
        return [s.write(i.operands[0], to, f"static_cast<{CPP[to]}>({a})")]
    if mode in ("rzi", "rni", "rmi", "rpi") and is_float(source) and re.fullmatch(r"[su]\d+", to):
        return [s.write(i.operands[0], to, f"to_integer<{CPP[to]}>({mode}({a}))")]
    raise ptx_error("unknown conversion")


def move(s, i):
    """mov between registers, and of two halves from or to one; cvta is a move where spaces share their addresses."""
    *_, kind = i.opcode
    to, source = i.operands
    if to.startswith("{"):
        parts = [p.strip() for p in to.strip("{}").split(",")]
        half = f"b{bits_of(kind) // len(parts)}"
        value = f"const auto whole = {s.read(source, 'b' + str(bits_of(kind)))};"
        return ["{ " + value + " " + " ".join(
            s.write(p, half, f"static_cast<{CPP[half]}>(whole >> {n * bits_of(half)})") for n, p in enumerate(parts)) + " }"]
    if source.startswith("{"):
        parts = [p.strip() for p in source.strip("{}").split(",")]
        half = f"b{bits_of(kind) // len(parts)}"
        whole = " | ".join(f"static_cast<{unsigned(kind)}>({s.read(p, half)}) << {n * bits_of(half)}"
                           for n, p in enumerate(parts))
        return [s.write(to, "b" + str(bits_of(kind)), f"static_cast<{unsigned(kind)}>({whole})")]
    return [s.write(to, kind, s.read(source, kind))]


def to_space(s, i):
    if i.opcode not in (["cvta", "to", "global", "u64"], ["cvta", "global", "u64"]):
        raise ptx_error("unknown space")
    return [s.write(i.operands[0], "u64", s.read(i.operands[1], "u64"))]


EMITTERS = {**dict.fromkeys(("add", "sub", "mul"), arithmetic), **dict.fromkeys(("fma", "mad"), multiply_add),
            **dict.fromkeys(("div", "rem"), divide), **dict.fromkeys(("min", "max"), smaller_larger),
            **dict.fromkeys(("neg", "abs", "not", "brev", "clz", "popc", "bfind"), one_operand),
            **dict.fromkeys(("and", "or", "xor"), bitwise), **dict.fromkeys(("shl", "shr"), shift), "bfi": insert_bits,
            "setp": compare, "selp": select, **dict.fromkeys(("ex2", "lg2", "rcp", "sqrt"), function), "cvt": convert,
            "mov": move, "cvta": to_space}
