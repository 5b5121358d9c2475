# SPDX-License-Identifier: Apache-2.0
"""Times that counts allow on an H100 SXM: of a call's roofline, and of its launches."""

import math

# H100 SXM, NVIDIA's data sheet: 3.35 TB/s; dense 989 TFLOP/s of bfloat16, 495 of TF32, 67 of float outside tensor cores.
# 132 multiprocessors with four schedulers, each of which issues an instruction of a warp in a clock; 65536 registers, 228 KiB
# of shared memory, 64 warps and 32 blocks (CUDA programming guide, compute capability 9.0). The data sheet's 989 are
# 132 x 4096 operations a clock at 1.83 GHz; cards are listed with a boost of 1.755 GHz, at which slots are counted.
BANDWIDTH = 3.35e12
MULTIPLY_ADDS = {"bf16": 989e12 / 2, "tf32": 495e12 / 2, "float": 67e12 / 2}
MULTIPROCESSORS, CLOCK, SCHEDULERS = 132, 1.755e9, 4
ISSUE = MULTIPROCESSORS * SCHEDULERS * CLOCK
REGISTERS, SHARED, WARPS, BLOCKS = 65536, 228 << 10, 64, 32
# Bytes that a multiprocessor loads in a clock at most, from what is not its own: where fewer have work, memory is not the limit.
LOADED = 64

# Rows and depth of a block's tile, and columns, of kernels that sum pairs in tiles.
TILES = {"gemm_": (128, 64, 128), "product<": (64, 32, 32), "key_product<": (64, 32, 32), "pair_product<": (64, 64, 16)}
# Elements that a lane takes in a turn of its main loop; of products in one of the loop that writes results.
ELEMENTS = {"gemm_keys<": 8, "gemm_queries<": 8, "gemm_key_lines<": 32, "gemm_query_lines<": 32, "pack_keys<": 4, "pack_queries<": 4, "pack_pairs<": 8,
            "pair_centres<": 8, "query_columns<": 8, "gate_gradient<": 8, "scan_chunks<": 8, "scan_rows<": 8,
            "scan_spread<": 8, "scan_queries<": 8, "scan_key_rows<": 8, "gemm_wgmma<": 8, "gemm_mma<": 8}


def by_prefix(table, name):
    return next((value for prefix, value in table.items() if name.startswith(prefix)), None)


def resident(threads, registers, shared):
    """Blocks that fit a multiprocessor at once. Registers come in units of 8 a thread, shared memory with 1 KiB a block."""
    warps = math.ceil(threads / 32)
    by_registers = REGISTERS // (warps * 32 * max(8, math.ceil(registers / 8) * 8))
    return max(1, min(BLOCKS, WARPS // warps, by_registers, SHARED // (shared + 1024)))


def waves(blocks, threads, registers, shared):
    return blocks / (MULTIPROCESSORS * resident(threads, registers, shared))


def tail(rounds):
    """How much longer whole rounds take than rounds that could be cut."""
    return math.ceil(rounds) / rounds


def sums_by_fold(call):
    """Whether `fold` sums the pairs; behind a product it looks for flags, of which an estimate has none."""
    return not any(launch[0].startswith(("gemm_", "product<", "scan_")) for launch in call["launches"])


def not_estimated(call):
    """Kernels that sum pairs one by one, of which the turns are not known."""
    if not sums_by_fold(call) or call["pass"] == "forward":
        return []
    return sorted({launch[0] for launch in call["launches"] if launch[0].startswith(("fold_keys<", "pair_gradient<"))})


def roofline(size, kind, backward):
    """(seconds of bytes, seconds of multiply-adds). Float is three products of TF32; where each channel has a filter of
    its own no product of matrices has depth, and float arithmetic outside tensor cores is left."""
    seconds = size.least_bytes(2 if kind == "bf16" else 4, backward) / BANDWIDTH
    work = size.least_multiply_adds(backward)
    if size.step:
        return seconds, work / MULTIPLY_ADDS["float"]
    if size.op == "conv" and size.heads == size.d:
        return seconds, work / MULTIPLY_ADDS["float"]
    return seconds, work / MULTIPLY_ADDS["bf16"] if kind == "bf16" else 3 * work / MULTIPLY_ADDS["tf32"]


def product_seconds(name, figures, size, blocks, share, rounds):
    """Of one launch of a kernel that sums pairs: the larger of the tensor cores' time and the schedulers', in rounds."""
    rows, depth, across = by_prefix(TILES, name)
    columns = size.B * size.d // size.heads
    work = size.heads * 2 * size.tile_pairs(rows, depth) * math.ceil(columns / across) * across * share
    rate = MULTIPLY_ADDS["bf16"] if name.startswith("gemm_") else MULTIPLY_ADDS["tf32"] / 4
    if "half_operand" in name:
        rate *= 2
    if name.startswith("gemm_wgmma<"):
        # Blocks stay, and take tiles in turns.
        rounds = size.heads * size.row_tiles(rows) * math.ceil(columns / across) * share / blocks
    issue = work / figures["multiply_adds"] * figures["loop"] / ISSUE
    return max(work / rate, issue) * tail(rounds)


def launch_seconds(name, figures, registers, static, launch, size, share, engine):
    """(at least, at most) of one launch, memory apart; `engine` where fold sums pairs."""
    _, blocks, threads, dynamic = launch
    if figures is None:
        return 0.0, 0.0
    rounds = waves(blocks, threads, registers, static + dynamic)
    low = high = 0.0
    if figures.get("tensor"):
        low = high = product_seconds(name, figures, size, blocks, share, rounds)
        if by_prefix(ELEMENTS, name):
            high += size.elements() * share / (32 * by_prefix(ELEMENTS, name)) * figures["results_loop"] / ISSUE
    elif name.startswith("fold<") and engine:
        work = 2 * size.tile_pairs(16, 32) * size.B * size.d * share
        low = high = work / figures["multiply_adds"] * figures["loop"] / ISSUE * tail(rounds)
    elif by_prefix(ELEMENTS, name):
        # Packed sequences have launches of their own.
        elements = size.elements() / len(size.lengths)
        high = elements / (32 * by_prefix(ELEMENTS, name)) * figures["loop"] / ISSUE * tail(rounds)
    return low, high


def call_seconds(call, kernels, registers, size):
    """(at least, at most, bytes) of a call. At least: memory and arithmetic go on at once, and what is not a product of
    pairs costs its bytes alone. At most: one after the other, and every branch of a loop is taken."""
    backward = call["pass"] != "forward"
    bytes_ = size.least_bytes(2 if call["type"] == "bf16" else 4, backward) + 2 * call["scratch"] + call["cleared"]
    totals = {}
    for name, blocks, *_ in call["launches"]:
        totals[name] = totals.get(name, 0) + blocks
    engine = sums_by_fold(call)
    low = high = 0.0
    for launch in call["launches"]:
        name = launch[0]
        used = registers.get(name, {"registers": 32, "shared": 0})
        # A forward call's kernels run again where a backward call begins with one; several launches share the rows.
        share = launch[1] / totals[name]
        one = launch_seconds(name, kernels.get(name), used["registers"], used["shared"], launch, size, share, engine)
        low, high = low + one[0], high + one[1]
    memory = bytes_ / BANDWIDTH
    if size.step:
        widest = max(launch[1] for launch in call["launches"])
        memory = max(memory, bytes_ / (min(widest, MULTIPROCESSORS) * LOADED * CLOCK))
    return max(low, memory), high + memory, bytes_
