# SPDX-License-Identifier: Apache-2.0
"""Types of PTX and the C++ types that stand for them, and how an operand is read as one or a result written."""

import re
import struct

from source import ptx_error

# Floating registers hold numbers, all others bits.
CPP = {"pred": "bool", "b8": "std::uint8_t", "u8": "std::uint8_t", "s8": "std::int8_t", "b16": "std::uint16_t",
       "u16": "std::uint16_t", "s16": "std::int16_t", "b32": "std::uint32_t", "u32": "std::uint32_t",
       "s32": "std::int32_t", "b64": "std::uint64_t", "u64": "std::uint64_t", "s64": "std::int64_t", "f32": "float",
       "f64": "double", "f16": "std::uint16_t", "bf16": "std::uint16_t"}
SPECIAL = {"%tid.x": "std::uint32_t(thread_index())", "%ctaid.x": "std::uint32_t(block_index())",
           "%laneid": "std::uint32_t(thread_index() % 32)", "%ntid.x": "threads_of_block()"}


def bits_of(kind):
    return 1 if kind == "pred" else int(re.sub(r"\D", "", kind))


def is_float(kind):
    return kind in ("f32", "f64")


def is_signed(kind):
    return kind.startswith("s")


def unsigned(kind):
    return f"std::uint{bits_of(kind)}_t"


def variable(register):
    return "r_" + register.lstrip("%")


class scope:
    """Registers in sight and their classes, symbols and where they are."""

    def __init__(self, symbols):
        self.levels = [{}]
        self.symbols = symbols

    def declare(self, kind, names):
        for name in names:
            self.levels[-1][name] = kind

    def kind_of(self, name):
        for level in reversed(self.levels):
            if name in level:
                return level[name]
        return None

    def read(self, operand, kind):
        """A C++ expression of the type that stands for `kind`."""
        own = self.kind_of(operand)
        target = CPP[kind]
        if own is not None:
            name = variable(operand)
            if CPP[own] == target:
                return name
            if own == "pred" or kind == "pred":
                raise ptx_error(f"{operand} of {own} read as {kind}")
            if is_float(own) and is_float(kind) or bits_of(own) < bits_of(kind):
                raise ptx_error(f"{operand} of {own} read as {kind}")
            if is_float(own) or is_float(kind):
                if bits_of(own) != bits_of(kind):
                    raise ptx_error(f"{operand} of {own} read as {kind}")
                return f"bits<{target}>({name})"
            return f"static_cast<{target}>({name})"
        if operand in SPECIAL:
            return f"static_cast<{target}>({SPECIAL[operand]})"
        if operand in self.symbols:
            return f"static_cast<{target}>({self.symbols[operand]})"
        return self.literal(operand, kind)

    @staticmethod
    def literal(operand, kind):
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            value = struct.unpack(">f", bytes.fromhex(match.group(1)))[0]
            return f"bits<float>(0x{match.group(1)}u)" if kind == "f32" else f"double({value!r})"
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"bits<double>(0x{match.group(1)}ull)"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", operand) and not is_float(kind):
            if kind == "pred":
                return "true" if int(operand, 0) else "false"
            value = int(operand, 0) & (1 << bits_of(kind)) - 1
            return f"static_cast<{CPP[kind]}>({value}ull)"
        raise ptx_error(f"unknown operand {operand} of {kind}")

    def write(self, operand, kind, value):
        """A C++ statement; a result narrower than its register is extended as its type says."""
        if operand == "_":
            return f"(void)({value});"
        own = self.kind_of(operand)
        if own is None:
            raise ptx_error(f"unknown register {operand}")
        name = variable(operand)
        if own == kind or CPP[own] == CPP[kind]:
            return f"{name} = {value};"
        if (own == "pred") != (kind == "pred") or bits_of(own) < bits_of(kind):
            raise ptx_error(f"{operand} of {own} takes {kind}")
        if is_float(own) or is_float(kind):
            if bits_of(own) != bits_of(kind):
                raise ptx_error(f"{operand} of {own} takes {kind}")
            return f"{name} = bits<{CPP[own]}>({value});"
        wide = f"std::int{bits_of(own)}_t" if is_signed(kind) else CPP[own]
        return f"{name} = static_cast<{CPP[own]}>(static_cast<{wide}>({value}));"
