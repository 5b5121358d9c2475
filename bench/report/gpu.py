#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/cuda-benchmarks.md from the results under bench/results/gpu, which scripts/gpu_check writes on a machine with a GPU.

gpu.py            writes it
gpu.py --check    says whether it is what the results give
"""

from bars import aligned
from pages import documents, write_or_check
from results import plain

PEERS = {"flash_attention": "flash attention", "cudnn_attention": "cuDNN attention"}


def cell(value):
    return "-" if value is None else plain(value)


def timings(document):
    """A row per case, type and pass: ours, the roofs of the same run, and attention of the same shape where it was timed."""
    attention = {(t["case"], t["type"], t["pass"], t["backend"]): t["ms"] for t in document.get("sdpa", [])}
    rows = [("case", "type", "pass", "aft", "cuBLAS", "copy", *PEERS.values())]
    for t in document["timings"]:
        key = (t["case"], t["type"], t["pass"])
        rows.append((t["case"].replace("|", "/"), t["type"], t["pass"], cell(t["ms"]), cell(t.get("cublas_ms")), cell(t["copy_ms"]),
                     *[cell(attention.get((*key, peer))) for peer in PEERS]))
    return aligned(rows)


def kernels(document):
    rows = [("case", "kernel", "launches", "mean ms")]
    for case, launched in document["kernels"]["cases"].items():
        rows += [(case, f"`{k['kernel']}`", str(k["launches"]), cell(k["mean_ms"])) for k in launched if k["mean_ms"] >= 0.1]
    return aligned(rows)


def page(results):
    yield "# The CUDA backend, measured\n"
    yield ("Made by `bench/report/gpu.py` from `bench/results/gpu/`. Milliseconds of device time, medians. *cuBLAS* is the matrix product "
           "that the sums of pairs amount to (with backward: all three), *copy* a copy of the bytes that the call must read and write, "
           "both in the same run; a call that reached its roof would take the larger of the two. Attention is `scaled_dot_product_attention` "
           "of PyTorch with heads of 64 channels on the same B, T and d, for scale: another operator.\n")
    yield ("Forward and backward calls in bfloat16 take its products, of which results still take longer to write than to multiply, and "
           "the gradient of a bias takes split float operands. Calls in float (`split_mma`) and filters of single channels run far below "
           "the roof.\n")
    for path, d in results:
        yield f"\n## {d['device']}\n"
        yield (f"`bench/results/gpu/{path.name}`: driver {d['driver']}, CUDA {d['cuda']}, {d['program']}, commit `{d['commit'][:12]}`, "
               f"{d['date']}; a copy moves {plain(d['copy_bytes_per_second'] / 1e12)} TB/s; PyTorch {d['torch']}.\n")
        yield timings(d)
        if "kernels" in d:  # a profiler's, which not every machine has
            yield f"\nKernels of at least 0.1 ms ({d['kernels']['how']}):\n"
            yield kernels(d)


if __name__ == "__main__":
    write_or_check("docs/cuda-benchmarks.md", page(documents("gpu")), __doc__)
