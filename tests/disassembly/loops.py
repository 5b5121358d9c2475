# SPDX-License-Identifier: Apache-2.0
"""The loops of an object file, from its disassembly: blocks, dominators, back edges."""

import re
import subprocess

FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
TARGET = re.compile(r"(?:^|, ?)([0-9a-f]+) <")


class Architecture:
    """What has to be known of an instruction set to read its loops."""

    def __init__(self, jump, always, leave, vector, stack, frame, multiply, store):
        self.jump = re.compile(jump)          # mnemonics that may go elsewhere
        self.always = re.compile(always)      # those that never go on
        self.leave = re.compile(leave)        # those that end the function
        self.vector = re.compile(vector)      # an operand that is a vector register
        self.stack = re.compile(stack)        # an address relative to the stack pointer
        self.frame = frame                    # (instruction that makes a frame pointer, an address relative to it)
        self.multiply = re.compile(multiply)  # multiply-adds of vectors, or the products where there are none
        self.store = re.compile(store)        # mnemonic and operands of a vector that is stored


ARCHITECTURES = {
    "x86": Architecture(
        jump=r"^j", always=r"^jmp", leave=r"^(ret|ud2|hlt)", vector=r"%[xyz]mm\d", stack=r"\(%rsp[,)]",
        frame=(re.compile(r"^mov\s+%rsp,%rbp$"), re.compile(r"\(%rbp[,)]")),
        multiply=r"^(vfn?m(add|sub)\d+[ps][sd]|vdpbf16ps|mulp[sd])$",
        store=r"^v?mov\w*\s+%[xyz]mm\d+,[^%]*\("),
    "aarch64": Architecture(
        jump=r"^(b|br|b\.\w+|cbn?z|tbn?z)$", always=r"^br?$", leave=r"^(ret|brk|udf)", vector=r"\b[qv]\d",
        stack=r"\[sp[,\]]", frame=(re.compile(r"^mov\s+x29, sp$"), re.compile(r"\[x29[,\]]")),
        multiply=r"^(fmla|fmls|bfdot|bfmmla)$", store=r"^(st[pru]\w*\s+q|st1\s)"),
}


class Loop:
    """The instructions of a loop that belong to no loop inside it."""

    def __init__(self, function, arch, code, framed):
        def on_stack(operands):
            return arch.stack.search(operands) or (framed and arch.frame[1].search(operands))
        self.function, self.start, self.length = function, code[0][0], len(code)
        self.multiplies = sum(bool(arch.multiply.match(name)) for _, name, _ in code)
        vectors = [(name, operands) for _, name, operands in code if arch.vector.search(operands)]
        self.spills = [f"{name} {operands}" for name, operands in vectors if on_stack(operands)]
        # Elsewhere than where a register was spilled to.
        self.stores = sum(bool(arch.store.match(f"{name} {operands}")) and not on_stack(operands) for name, operands in vectors)


def functions(objdump, path):
    """(name, [(address, mnemonic, operands)]) of each."""
    name, code = None, []
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    for line in text.stdout.splitlines():
        start, instruction = FUNCTION.match(line), INSTRUCTION.match(line)
        if start:
            if code:
                yield name, code
            name, code = start.group(2), []
        elif instruction:
            code.append((int(instruction.group(1), 16), instruction.group(2), instruction.group(3)))
    if code:
        yield name, code


def blocks(code, arch):
    """(first, last) instruction of each block, and the blocks that may follow it."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    goes, ends, starts = {}, set(), {0}
    for i, (_, name, operands) in enumerate(code):
        if arch.jump.match(name):
            target = TARGET.search(operands)
            if target and int(target.group(1), 16) in at:
                goes[i] = at[int(target.group(1), 16)]
                starts.add(goes[i])
            ends.add(i)
        elif arch.leave.match(name):
            ends.add(i)
        if i in ends:
            starts.add(i + 1)
    first = sorted(s for s in starts if s < len(code))
    number = {s: k for k, s in enumerate(first)}
    last = [*(s - 1 for s in first[1:]), len(code) - 1]
    follow = []
    for k, i in enumerate(last):
        after = [number[goes[i]]] if i in goes else []
        if k + 1 < len(first) and (i not in ends or (arch.jump.match(code[i][1]) and not arch.always.match(code[i][1]))):
            after.append(k + 1)
        follow.append(after)
    # Tables of jumps hold what nothing else leads to.
    reached = {k for after in follow for k in after}
    tables = [k for k, i in enumerate(last) if arch.always.match(code[i][1]) and i not in goes and "<" not in code[i][2]]
    for k in range(1, len(first)):
        if k not in reached:
            for table in tables:
                follow[table].append(k)
    return list(zip(first, last)), follow


def dominators(follow):
    """The blocks in reverse postorder, their predecessors, and of each the nearest block that all ways to it pass."""
    order, seen, stack = [], {0}, [(0, iter(follow[0]))]
    while stack:
        k, rest = stack[-1]
        unseen = next((x for x in rest if x not in seen), None)
        if unseen is None:
            order.append(k)
            stack.pop()
        else:
            seen.add(unseen)
            stack.append((unseen, iter(follow[unseen])))
    order.reverse()
    place = {k: i for i, k in enumerate(order)}
    before = {k: [] for k in order}
    for k in order:
        for x in follow[k]:
            before[x].append(k)
    nearest, changed = {0: 0}, True
    while changed:
        changed = False
        for k in order[1:]:
            known = [p for p in before[k] if p in nearest]
            common = known[0]
            for p in known[1:]:
                while p != common:
                    if place[p] > place[common]:
                        p = nearest[p]
                    else:
                        common = nearest[common]
            if nearest.get(k) != common:
                nearest[k], changed = common, True
    return order, before, nearest


def loops(objdump, path, arch):
    """All loops of an object file."""
    for name, code in functions(objdump, path):
        spans, follow = blocks(code, arch)
        order, before, nearest = dominators(follow)

        def dominates(head, k):
            while k not in (head, 0):
                k = nearest[k]
            return k == head

        bodies = {}
        for k in order:
            for head in follow[k]:
                if dominates(head, k):
                    body, todo = bodies.setdefault(head, {head}), [k]
                    while todo:
                        x = todo.pop()
                        if x not in body:
                            body.add(x)
                            todo += before[x]
        framed = any(arch.frame[0].match(f"{mnemonic} {operands}") for _, mnemonic, operands in code[:40])
        for head, body in bodies.items():
            inner = set().union(*(b for h, b in bodies.items() if h != head and h in body))
            own = [code[i] for k in sorted(body - inner) for i in range(spans[k][0], spans[k][1] + 1)]
            if own:
                yield Loop(name, arch, own, framed)
