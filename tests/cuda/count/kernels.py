# SPDX-License-Identifier: Apache-2.0
"""What one turn of a kernel's main loop executes, and how many multiply-adds it makes, from a cubin."""

import collections

import sass

TENSOR = ("HGMMA", "HMMA")
# Operands of split float: so many products for one of the call's (ADR 0009); all others one.
SPLIT_PRODUCTS = 4
# Kernels whose main loop reads what the block has staged in shared memory, one pair after the other. Elsewhere it is the
# longest loop.
BY_PAIRS = ("fold<", "fold_keys<", "pair_gradient<")


def products_of(name):
    return SPLIT_PRODUCTS if "_operand>" in name else 1


def counts(code, body):
    return collections.Counter(sass.class_of(code[i]) for i in body)


def own_parts(loops):
    """(body, what of it is in no loop within it) of each."""
    for body in loops:
        inside = [other for other in loops if other < body]
        yield body, body.difference(*inside) if inside else body


def main_loop(name, code):
    """The indices of the main loop's instructions, without those of loops within it; empty where there is no loop."""
    parts = list(own_parts(sass.loops(code)))
    if not parts:
        return frozenset()
    of = {own: counts(code, own) for _, own in parts}
    tensor = [own for own in of if any(of[own][t] for t in TENSOR)]
    if tensor:
        return max(tensor, key=lambda own: (sum(of[own][t] for t in TENSOR), -len(own)))
    if name.startswith(BY_PAIRS):
        pairs = [own for own in of if of[own]["LDS"] and of[own]["FFMA"] + of[own]["DFMA"] and not of[own]["BAR"]]
        if pairs:
            return max(pairs, key=len)
    return max(of, key=len)


def longest_loop(code, but):
    """Of the others the one with most instructions: of a matrix product that writes its results."""
    return max((own for _, own in own_parts(sass.loops(code)) if own != but), key=len, default=frozenset())


def describe(name, code):
    """The figures of one kernel. `loop`: instructions of a turn; `multiply_adds`: of a turn of one warp."""
    body = main_loop(name, code)
    tensor = any(sass.class_of(code[i]) in TENSOR for i in body)
    classes = counts(code, body)
    adds = sum(sass.multiply_adds(code[i]) for i in body if not tensor or sass.class_of(code[i]) in TENSOR)
    figures = {"loop": len(body), "multiply_adds": adds // (products_of(name) if tensor else 1),
               "classes": dict(sorted(classes.items()))}
    if tensor:
        figures["tensor"] = True
        figures["results_loop"] = len(longest_loop(code, body))
    return figures


def of_cubin(image, arch):
    """By short names. Before sm_90 a branch keeps its distance in one piece."""
    by_name = dict(sass.code_of(image, arch != "sm_80"))
    short = sass.short_names(list(by_name))
    found = {short[name]: describe(short[name], code) for name, code in by_name.items()}
    return dict(sorted(found.items()))


def per_thousand(figures):
    """Instructions of a warp for 1024 multiply-adds."""
    return figures["loop"] * 1024 / figures["multiply_adds"] if figures["multiply_adds"] else None
