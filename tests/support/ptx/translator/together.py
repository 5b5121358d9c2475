# SPDX-License-Identifier: Apache-2.0
"""Instructions of many threads: barriers, exchanges in a warp, copies, and products of matrices."""

from kinds import is_float
from spaces import address, elements
from source import ptx_error


def spelled(i):
    return ".".join(i.opcode)


def reads(s, operand, kind):
    return ", ".join(s.read(name, kind) for name in elements(operand))


def barrier(s, i):
    form = spelled(i)
    if form == "bar.sync" and len(i.operands) == 1:
        return [f"barrier({s.read(i.operands[0], 'u32')}, {i.line});"]
    if form == "bar.warp.sync":
        return [f"warp_barrier({s.read(i.operands[0], 'u32')}, {i.line});"]
    if form == "bar.red.or.pred" and len(i.operands) == 3:
        return [s.write(i.operands[0], "pred",
                        f"barrier_any({s.read(i.operands[1], 'u32')}, {s.read(i.operands[2], 'pred')}, {i.line})")]
    raise ptx_error("unknown barrier")


def shuffle(s, i):
    modes = {"shfl.sync.bfly.b32": "exchange::xor_mask", "shfl.sync.idx.b32": "exchange::index",
             "shfl.sync.up.b32": "exchange::up", "shfl.sync.down.b32": "exchange::down"}
    if spelled(i) not in modes:
        raise ptx_error("unknown shuffle")
    to, _, valid = i.operands[0].partition("|")
    a, b, c, mask = (s.read(i.operands[n], "b32") for n in (1, 2, 3, 4))
    statement = s.write(to, "b32", "got.value")
    if valid:
        statement += " " + s.write(valid, "pred", "got.valid")
    return [f"{{ const auto got = shuffle({modes[spelled(i)]}, {a}, {b}, {c}, {mask}, {i.line}); {statement} }}"]


def vote(s, i):
    if spelled(i) != "vote.sync.ballot.b32":
        raise ptx_error("unknown vote")
    return [s.write(i.operands[0], "b32",
                    f"ballot({s.read(i.operands[1], 'pred')}, {s.read(i.operands[2], 'b32')}, {i.line})")]


def load_matrices(s, i):
    if spelled(i) != "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
        raise ptx_error("unknown matrix load")
    names = elements(i.operands[0])
    writes = " ".join(s.write(name, "b32", f"got[{n}]") for n, name in enumerate(names))
    return [f"{{ const auto got = load_matrices({address(s, i.operands[1])}, {i.line}); {writes} }}"]


def multiply(s, i):
    """mma.sync: both operands by rows of the depth, D and C in float."""
    kinds = {"m16n8k8.row.col.f32.tf32.tf32.f32": "tf32", "m16n8k16.row.col.f32.f16.f16.f32": "half",
             "m16n8k16.row.col.f32.bf16.bf16.f32": "bfloat16"}
    head, shape = ".".join(i.opcode[:3]), ".".join(i.opcode[3:])
    if head != "mma.sync.aligned" or shape not in kinds:
        raise ptx_error("unknown product")
    counts = [len(elements(operand)) for operand in i.operands]
    if counts != [4, 4, 2, 4]:
        raise ptx_error("fragments of another size")
    writes = " ".join(s.write(name, "f32", f"got[{n}]") for n, name in enumerate(elements(i.operands[0])))
    return [f"{{ const auto got = multiply_warp(operand_kind::{kinds[shape]}, {{{reads(s, i.operands[1], 'b32')}}}, "
            f"{{{reads(s, i.operands[2], 'b32')}}}, {{{reads(s, i.operands[3], 'f32')}}}, {i.line}); {writes} }}"]


def copy(s, i):
    form = spelled(i)
    if form == "cp.async.cg.shared.global" and i.operands[2:] == ["16"]:
        return [f"copy_async({address(s, i.operands[0])}, {address(s, i.operands[1])}, {i.line});"]
    if form == "cp.async.commit_group":
        return ["aft::emulator::commit_copies();"]
    if form == "cp.async.wait_group":
        return [f"aft::emulator::wait_copies({int(i.operands[0])});"]
    if form == "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes":
        to, source, size, at = i.operands
        return [f"copy_bulk({address(s, to)}, {address(s, source)}, {s.read(size, 'u32')}, {address(s, at)}, {i.line});"]
    raise ptx_error("unknown copy")


def arrival(s, i):
    form = spelled(i).removesuffix(".shared::cta.b64")
    if form == "mbarrier.init":
        return [f"init_barrier({address(s, i.operands[0])}, {s.read(i.operands[1], 'u32')}, {i.line});"]
    if form == "mbarrier.arrive" and i.operands[0] == "_" and len(i.operands) == 2:
        return [f"arrive({address(s, i.operands[1])}, 0, {i.line});"]
    if form == "mbarrier.arrive.expect_tx" and i.operands[0] == "_":
        return [f"arrive({address(s, i.operands[1])}, {s.read(i.operands[2], 'u32')}, {i.line});"]
    if form == "mbarrier.try_wait.parity":
        return [s.write(i.operands[0], "pred",
                        f"try_wait({address(s, i.operands[1])}, {s.read(i.operands[2], 'u32')}, {i.line})")]
    raise ptx_error("unknown operation of an arrival barrier")


def fence(s, i):
    # The first orders the initialisation for other blocks of a cluster, of which there are none.
    forms = {"fence.mbarrier_init.release.cluster": "", "fence.proxy.async.shared::cta": "show_to_copies();"}
    if spelled(i) not in forms:
        raise ptx_error("unknown fence")
    return [forms[spelled(i)]]


def registers(s, i):
    """Their number is ptxas' and the hardware's concern; here only what the manual allows."""
    form, count = spelled(i), int(i.operands[0])
    if form not in ("setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32"):
        raise ptx_error("unknown operation")
    if count % 8 != 0 or not 24 <= count <= 256:
        raise ptx_error("a number of registers that no thread can have")
    return []


def warpgroup(s, i):
    form = spelled(i)
    if form == "wgmma.fence.sync.aligned":
        return ["warpgroup_fence();"]
    if form == "wgmma.commit_group.sync.aligned":
        return ["warpgroup_commit();"]
    if form == "wgmma.wait_group.sync.aligned":
        return [f"warpgroup_wait({int(i.operands[0])});", "settle_sums"]
    if form != "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16":
        raise ptx_error("unknown product of a warpgroup")
    sums, a, b, adds, *scales = i.operands
    names = elements(sums)
    if len(names) != 128 or len(scales) != 4 or not all(is_float(s.kind_of(name)) for name in names):
        raise ptx_error("an unknown form")
    signs = [int(x) for x in scales[:2]]
    if scales[2:] != ["0", "0"] or any(abs(x) != 1 for x in signs):
        raise ptx_error("operands that are transposed or scaled by other than a sign are not translated")
    takes = ", ".join(s.read(name, "f32") for name in names)
    writes = " ".join(s.write(name, "f32", f"sums[{n}]") for n, name in enumerate(names))
    return [f"{{ float sums[128] = {{{takes}}}; multiply_group(sums, {s.read(a, 'b64')}, {s.read(b, 'b64')}, "
            f"{s.read(adds, 'pred')}, {signs[0] * signs[1]}, {i.line}); {writes} }}"]


EMITTERS = {"bar": barrier, "shfl": shuffle, "vote": vote, "ldmatrix": load_matrices, "mma": multiply, "cp": copy,
            "mbarrier": arrival, "fence": fence, "setmaxnreg": registers, "wgmma": warpgroup}
