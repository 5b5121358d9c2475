#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's scaled_dot_product_attention for the shapes of the operators, and adds it to a timings file.

sdpa.py <timings.json>: needs a torch that sees the GPU; says so and leaves the file alone where there is none.
"""

import json
import statistics
import sys

SHAPES = {  # name: (B, T, d, causal), named as in timings/whole_calls.cpp
    "full B32 T3072 d512": (32, 3072, 512, False),
    "full causal B32 T3072 d512": (32, 3072, 512, True),
    "full B256 T197 d384": (256, 197, 384, False),
    "full causal B128 T1024 d512": (128, 1024, 512, True),
}


def milliseconds(torch, work):
    calls, times = 4, []
    for run in range(30):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        # The device waits while the host hands over the calls, whose time on the host is then in no figure.
        torch.cuda._sleep(20_000_000)
        start.record()
        for _ in range(calls):
            work()
        stop.record()
        torch.cuda.synchronize()
        if run >= 3:
            times.append(start.elapsed_time(stop) / calls)
    return statistics.median(times)


def rows(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attention = torch.nn.functional.scaled_dot_product_attention
    for name, (B, T, d, causal) in SHAPES.items():
        heads = d // 64
        q, k, v = (torch.randn(B, heads, T, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                   for _ in range(3))
        upstream = torch.randn_like(q)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend):
                try:
                    with torch.no_grad():
                        forward = milliseconds(torch, lambda: attention(q, k, v, is_causal=causal))
                    both = milliseconds(torch, lambda: attention(q, k, v, is_causal=causal).backward(upstream))
                except RuntimeError as error:
                    print(f"{backend.name}: {str(error).splitlines()[0]}")
                    continue
            for which, ms in (("forward", forward), ("forward+backward", both)):
                yield {"case": name, "type": "bf16", "pass": which, "backend": backend.name.lower(), "ms": ms}


def main():
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("torch sees no GPU")
    except ImportError as error:
        print(f"no comparison with PyTorch: {error}")
        return
    with open(sys.argv[1], encoding="utf-8") as file:
        timings = json.load(file)
    timings["torch"] = torch.__version__
    timings["sdpa"] = list(rows(torch))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(timings, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
