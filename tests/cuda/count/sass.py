# SPDX-License-Identifier: Apache-2.0
"""Machine code of NVIDIA GPUs as far as counting needs it: opcodes, widths, branches, and the loops that they make.

A toolkit need not bring a disassembler. An instruction is 16 bytes; the low 12 bits are its opcode and form, the low 9 of
them the operation alone. The places of the fields were found from what nvdisasm 13.5 printed for all 53,000 branches of
these kernels on sm_80, sm_90a and sm_100.
"""

import collections
import re
import struct
import subprocess

# Operations of the kernels, by their low 9 bits. What is not here is `other`.
CLASSES = {
    "HGMMA": (0x1F0,), "HMMA": (0x03C,), "FFMA": (0x023,), "DFMA": (0x02B,), "MUFU": (0x108,),
    "FMUL/FADD": (0x020, 0x021, 0x009), "DMUL/DADD": (0x028, 0x029), "half": (0x030, 0x031, 0x035),
    "IMAD": (0x024, 0x025, 0x027, 0x0A4, 0x0A5),
    "integer": (0x010, 0x011, 0x012, 0x013, 0x016, 0x017, 0x019, 0x036, 0x046, 0x048, 0x090, 0x091, 0x092, 0x096, 0x099),
    "compare/select": (0x007, 0x008, 0x00A, 0x00B, 0x00C, 0x01C, 0x02A, 0x087, 0x08C, 0x09C),
    "convert": (0x03E, 0x045, 0x104, 0x105, 0x106, 0x110, 0x111, 0x112),
    "move": (0x002, 0x003, 0x005, 0x082, 0x0CA, 0x119, 0x11C, 0x1C3),
    "LDG": (0x181, 0x17E, 0x180), "STG": (0x186, 0x17F, 0x185), "LDS": (0x184,), "STS": (0x188,), "LDSM": (0x03B,),
    "LDGSTS": (0x1AE,), "UBLKCP": (0x1BA,), "SHFL": (0x189,), "BAR": (0x11D,), "LDC": (0x182, 0x0B9, 0x1AC),
    "branch": (0x141, 0x142, 0x144, 0x145, 0x146, 0x147, 0x148, 0x149, 0x14D, 0x150),
}
CLASS_OF = {code: name for name, codes in CLASSES.items() for code in codes}
BRA, EXIT, RET, BRX = 0x147, 0x14D, 0x150, 0x149
# Multiply-adds of one instruction of a warp. HGMMA is one of four warps: 64 x 256 x 16 for all.
GROUP_PRODUCT = 64 * 256 * 16 // 4
LANES = 32
JUMPS = 0x34  # the attribute of a kernel that lists where its tables of jumps lead

instruction = collections.namedtuple("instruction", "code always targets low high")


def decoded(low, high, at, split, jumps=None):
    """One instruction at byte `at`; `split` says where a branch keeps its distance, `jumps` where tables of jumps lead."""
    code = low & 0x1FF
    targets = tuple((jumps or {}).get(at, ()))
    if code == BRA:
        distance = low >> 34 | (high & 0x3FFFF) << 30
        if distance >> 47:
            distance -= 1 << 48
        # From sm_90 on the low 8 bits lie apart; both count words of 4 bytes.
        words = distance << 8 | low >> 16 & 0xFF if split else distance
        targets = (at + 16 + 4 * words,)
    # Executed whatever predicates say: both of those that an instruction can have are PT. Bits 32 and 33 of a branch make it
    # one that a uniform predicate decides, or whether the warp's lanes are together.
    always = low >> 12 & 0xF == 7 and (code != BRA or high >> 23 & 0xF == 7 and low >> 32 & 3 == 0)
    return instruction(code, always, targets, low, high)


def class_of(item):
    return CLASS_OF.get(item.code, "other")


def multiply_adds(item):
    """That one instruction does for all lanes of its warp."""
    name = class_of(item)
    if name == "HGMMA":
        return GROUP_PRODUCT
    if name == "HMMA":
        return 2048 if item.high >> 8 & 8 else 1024  # m16n8k16, m16n8k8
    return LANES if name in ("FFMA", "DFMA") else 0


def sections(image):
    """(name, bytes) of each section of a cubin, an ELF file of 64 bits."""
    table, = struct.unpack_from("<Q", image, 0x28)
    _, count, names = struct.unpack_from("<HHH", image, 0x3A)
    found = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * 64) for i in range(count)]
    for name_at, _, _, _, offset, length, *_ in found:
        start = found[names][4] + name_at
        yield image[start:image.index(b"\0", start)].decode(), image[offset:offset + length]


def tables_of_jumps(info):
    """{byte of a BRX: bytes that it can lead to}, from a kernel's .nv.info."""
    found, at = {}, 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:  # others have their value in place of the size
            continue
        if attribute == JUMPS:
            words = struct.unpack_from(f"<{size // 4}I", info, at)
            while words:
                found[words[0]] = words[3:3 + words[2]]
                words = words[3 + words[2]:]
        at += size
    return found


def code_of(image, split):
    """(mangled name, instructions) of every kernel in a cubin."""
    by_name = dict(sections(image))
    for name, text in by_name.items():
        if name.startswith(".text."):
            kernel = name.removeprefix(".text.")
            jumps = tables_of_jumps(by_name.get(".nv.info." + kernel, b""))
            yield kernel, [decoded(low, high, 16 * i, split, jumps) for i, (low, high) in
                           enumerate(struct.iter_unpack("<QQ", text))]


def short_names(mangled):
    """aft::...::fold_kernel<float>(...) as `fold<float>`, of many at once."""
    full = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    result = {}
    for name, line in zip(mangled, full.splitlines()):
        match = re.search(r"(\w+)_kernel(<[^(]*>)?\(", line)
        result[name] = re.sub(r"\w+::", "", match.group(1) + (match.group(2) or "")) if match else line
    return result


def successors(code):
    """Of each instruction, by index. What a call leads to is left out: divisions, rare cases."""
    for i, item in enumerate(code):
        after = [target // 16 for target in item.targets if 0 <= target // 16 < len(code)]
        ends = item.code in (BRA, EXIT, RET, BRX) and item.always
        if not ends and i + 1 < len(code):
            after.append(i + 1)
        yield after


def loops(code):
    """Sets of indices, one for each natural loop that the entry reaches; loops with one head are one."""
    after = list(successors(code))
    starts = sorted({0} | {t for i, next_ in enumerate(after) for t in next_ if t != i + 1} |
                    {i + 1 for i, next_ in enumerate(after) if next_ != [i + 1] and i + 1 < len(code)})
    block_of = {}
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(code)
        for i in range(start, end):
            block_of[i] = number
    edges = [[block_of[t] for t in after[(starts[n + 1] if n + 1 < len(starts) else len(code)) - 1]]
             for n in range(len(starts))]
    order, seen, stack = [], {0}, [(0, iter(edges[0]))]
    while stack:
        block, rest = stack[-1]
        for to in rest:
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(edges[to])))
                break
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    rank = {block: i for i, block in enumerate(order)}
    before = collections.defaultdict(list)
    for block in order:
        for to in edges[block]:
            before[to].append(block)
    # Cooper, Harvey and Kennedy's iteration for immediate dominators.
    owner = {0: 0}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in before[block] if p in owner]
            new = known[0]
            for other in known[1:]:
                while new != other:
                    if rank[new] > rank[other]:
                        new = owner[new]
                    else:
                        other = owner[other]
            if owner.get(block) != new:
                owner[block] = new
                changed = True
    bodies = collections.defaultdict(set)
    for block in order:
        for head in edges[block]:
            above = block
            while above != head and above != 0:
                above = owner[above]
            if above != head:
                continue
            body, todo = bodies[head] | {head}, [block]
            while todo:
                at = todo.pop()
                if at not in body:
                    body.add(at)
                    todo += before[at]
            bodies[head] = body
    blocks = collections.defaultdict(list)
    for i, block in block_of.items():
        blocks[block].append(i)
    return [frozenset(i for block in body for i in blocks[block]) for body in bodies.values()]
