#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/developing/aarch64.md from bench/results/instructions/aarch64.json; --check fails if the page is another.

The record is read from the disassembly of inner loops, for targets on which nobody could measure time.
"""

from pages import documents, write_or_check

HEAD = """# 64-bit ARM, counted

Made by `bench/report/instructions.py` from `bench/results/instructions/aarch64.json`. No processor of this kind was at hand: results
are compared with the reference under QEMU, and time was not measured. What was tuned was tuned by reading the machine code of inner
loops: instructions, multiply-adds of vectors among them, and accesses to the stack, of vectors and of anything else.
"""

TAIL = """
The tile loads twelve weights as three vectors and multiplies by their lanes, in place of fourteen broadcasts that left no register. An exp reads its
table of eight entries by TBL, as AVX2 does from a register; casts between numbers and bits, and pairs of vectors that functions
return, went through the stack with GCC 12. Half and bfloat16 are converted by instructions, and were converted lane by lane. The
stencil stays as it was: its tile has no access to the stack. What the scan still keeps on the stack are mostly addresses.

Products of bfloat16 are made by BFDOT where the target has it ([0010](../adr/0010-bfloat16-products.md)). Vectors of SVE of a fixed length (256 bits, xsimd 13)
gave right results under QEMU, for one call of each operator with its gradients; their tile is that of NEON without lanes, and was not tuned.
"""


def cell(count, key):
    return "-" if count is None else str(count[key])


def page(record):
    yield HEAD
    yield (f"{record['target']}, {record['compiler']}, xsimd {record['xsimd']}, {record['date']}; before: commit "
           f"`{record['before']}`, after: `{record['after']}`.\n")
    keys = ("instructions", "multiplies", "stack")
    yield "| loop | " + " | ".join(f"{words}, before | after" for words in ("instructions", "multiply-adds", "stack")) + " |"
    yield "|---" * 7 + "|"
    for loop in record["loops"]:
        cells = [cell(loop[when], key) for key in keys for when in ("before", "after")]
        yield f"| {loop['kernel']} | " + " | ".join(cells) + " |"
    yield TAIL


if __name__ == "__main__":
    write_or_check("docs/developing/aarch64.md", page(documents("instructions")[0][1]), __doc__)
