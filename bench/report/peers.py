#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers, in PyTorch: dot-product attention, and the AFT operators as they are written with tensor operations.

A process of its own, driven by the benchmark program: PyTorch brings its own OpenMP runtime and its own oneDNN, and two of
either in one process would spin on the same cores. Commands come as JSON lines and are answered by one line each:
  {"open": path, "dtype": d, "tensors": {name: [offset, shape]}}   copies the tensors out of the shared file
  {"make": id, "kind": k, "causal": c, "training": t, ...}         prepares a call on them
  {"run": id, "calls": n}                                          does it n times, answers with the seconds
  {"result": id, "offset": o}                                      writes its output to the shared file, as float32
  {"close": true}                                                  forgets all tensors and calls
"""

import gc
import json
import mmap
import os
import sys
import time

import torch
import torch.nn.functional as F

TYPES = {"float": torch.float32, "bfloat16": torch.bfloat16, "double": torch.float64}


# q, k, v are (B, T, d) as everywhere in this library.
def sdpa(x, options):
    """Attention with heads of 64 channels, on the same memory."""
    def heads(t):
        return t.view(t.shape[0], -1, t.shape[-1] // 64, 64).transpose(1, 2)
    return F.scaled_dot_product_attention(heads(x["q"]), heads(x["k"]), heads(x["v"]), is_causal=options["causal"])


def weighted(x, w):
    """AFT-full: numerators and denominators as products with exp(w), both exponents shifted by their maxima."""
    ek = torch.exp(x["k"] - x["k"].amax(1, keepdim=True))
    ew = torch.exp(w - w.amax(1, keepdim=True))
    # torch.einsum makes the same products and then copies them into another order.
    return torch.sigmoid(x["q"]) * (ew @ (ek * x["v"])) / (ew @ ek)


def full(x, options):
    w = x["w"]
    if options["causal"]:
        w = w.masked_fill(x["future"], float("-inf"))
    return weighted(x, w)


def local(x, options):
    """AFT-local as usually written: the bias times a mask of the window, then as AFT-full."""
    w = x["w"] * x["window"]
    if options["causal"]:
        w = w.masked_fill(x["future"], float("-inf"))
    return weighted(x, w)


def simple(x, options):
    if options["causal"]:
        ek = torch.exp(x["k"] - x["k"].amax(1, keepdim=True))
        return torch.sigmoid(x["q"]) * torch.cumsum(ek * x["v"], 1) / torch.cumsum(ek, 1)
    return torch.sigmoid(x["q"]) * (torch.softmax(x["k"], 1) * x["v"]).sum(1, keepdim=True)


def conv(x, options):
    """AFT-conv by grouped convolutions with exp(w) - 1 and the sums of all keys. q, v (B, h, w, d), k (B, h, w, H)."""
    return conv_channels_first({n: x[n].permute(0, 3, 1, 2) for n in "qkv"} | {"w": x["w"]}, options).permute(0, 2, 3, 1)


def conv_channels_first(x, options):
    q, k, v = (x[n] for n in "qkv")
    H, d = k.shape[1], v.shape[1]
    r = x["w"]
    filters = torch.expm1(r).unsqueeze(1)
    ek = torch.exp(k - k.amax((2, 3), keepdim=True))
    ekv = ek.repeat_interleave(d // H, 1) * v if H != d else ek * v
    pad = r.shape[1] // 2
    num = F.conv2d(ekv, filters.repeat_interleave(d // H, 0), padding=pad, groups=d) + ekv.sum((2, 3), keepdim=True)
    den = F.conv2d(ek, filters, padding=pad, groups=H) + ek.sum((2, 3), keepdim=True)
    if H != d:
        den = den.repeat_interleave(d // H, 1)
    return torch.sigmoid(q) * num / den


def grown(x):
    """The query, keys and values of attention for one more position of each sequence, whose key and value take the last place of
    a cache that was allocated for as many positions as there will be: the cheapest way there is to keep one."""
    def heads(t):
        return t.view(t.shape[0], -1, t.shape[-1] // 64, 64).transpose(1, 2)
    x["keys"][:, :, -1:] = heads(x["k"])
    x["values"][:, :, -1:] = heads(x["v"])
    return heads(x["q"]), x["keys"], x["values"]


def cached(x, options):
    return F.scaled_dot_product_attention(*grown(x))


def cached_products(x, options):
    """For one query and many sequences two products and a softmax can be the faster attention."""
    q, k, v = grown(x)
    return torch.softmax(q @ k.transpose(2, 3) / 8, -1) @ v


KINDS = {"sdpa": sdpa, "cached": cached, "cached_products": cached_products, "full": full, "local": local, "simple": simple, "conv": conv,
         "conv_channels_first": conv_channels_first}


class Session:
    """Tensors of one race and the calls on them."""

    def __init__(self, command):
        with open(command["open"], "r+b") as file:
            self.file = mmap.mmap(file.fileno(), 0)
        self.tensors = {}
        for name, (offset, shape) in command["tensors"].items():
            flat = torch.frombuffer(self.file, dtype=TYPES[command["dtype"]], offset=offset,
                                    count=torch.Size(shape).numel())
            # Into memory of the allocator's own: the shared pages are small ones.
            self.tensors[name] = flat.view(shape).clone()
        self.calls = {}

    def make(self, command):
        if "context" in command and "keys" not in self.tensors:
            batch, _, d = self.tensors["q"].shape
            for name in ("keys", "values"):
                # The same numbers for all sequences, as gigabytes of random ones take half a minute; memory of its own for each.
                one = torch.randn(1, d // 64, command["context"], 64, dtype=self.tensors["q"].dtype)
                self.tensors[name] = one.expand(batch, -1, -1, -1).contiguous()
        x = dict(self.tensors)
        if "window" in command:
            t = torch.arange(x["w"].shape[0])
            distance = (t[:, None] - t[None, :]).abs()
            x["window"] = (distance < command["window"]).to(x["w"].dtype)
        if command["causal"] and "w" in x:
            x["future"] = torch.ones(x["w"].shape, dtype=torch.bool).triu(1)
        kind = KINDS[command["kind"]]
        call = kind
        if command["compiled"]:
            # Shapes are known and stay: the compiler makes the most of them. Compiled and tuned by the first call, here.
            call = torch.compile(kind, dynamic=False)
        if kind is sdpa and x["k"].shape != x["q"].shape:
            # Keys that heads share are too few for attention; a copy of the values has as many as it needs.
            x["k"] = x["v"].clone()
        if kind is conv_channels_first:
            # Its tensors lie that way from the start.
            x.update({n: x[n].permute(0, 3, 1, 2).contiguous() for n in ("q", "k", "v", "dy") if n in x})
        if not command["training"]:
            def forward():
                with torch.inference_mode():
                    return call(x, command)
            self.calls[command["make"]] = forward
            return
        leaves = [x[n].requires_grad_() for n in ("q", "k", "v", "w") if n in x and not (n == "w" and kind is sdpa)]
        dy = x["dy"]

        def forward_and_backward():
            y = call(x, command)
            if kind is sdpa:
                y = y.transpose(1, 2).reshape(dy.shape)
            return torch.autograd.grad(y, leaves, dy)
        if command["compiled"]:
            forward_and_backward()
        self.calls[command["make"]] = forward_and_backward

    def run(self, command):
        call = self.calls[command["run"]]
        start = time.perf_counter()
        for _ in range(command["calls"]):
            call()
        return {"seconds": time.perf_counter() - start}

    def result(self, command):
        y = self.calls[command["result"]]().to(torch.float32).contiguous()
        into = torch.frombuffer(self.file, dtype=torch.float32, offset=command["offset"], count=y.numel())
        into.copy_(y.view(-1))
        return {"count": y.numel()}


def status(key):
    """A line of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def peak_memory(kind, T, d=512):
    """Bytes at the peak of one call on a sequence, beyond inputs and output; the process makes no other call."""
    def tensors(length):
        x = {n: torch.randn(1, length, d) for n in "qkv"}
        if kind != "sdpa" and kind != "simple":
            x["w"] = torch.randn(length, length)
        if kind == "local":
            x["window"] = torch.ones(length, length)
        return x
    options = {"causal": False}
    with torch.inference_mode():
        # Code pages and threads are there before.
        KINDS[kind](tensors(64), options)
        x = tensors(T)
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak starts again from here
        before = status("VmRSS")
        y = KINDS[kind](x, options)
        return status("VmHWM") - before - y.numel() * y.element_size()


def main():
    # What libraries print must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(int(sys.argv[1]))
    gc.disable()
    if len(sys.argv) > 2:
        print(peak_memory(sys.argv[2], int(sys.argv[3])), file=answers)
        return
    # glibc gives freed blocks back until larger ones have been freed: 32 MiB, the most it learns from, as in a process
    # that has run for a while. Else what came before would decide whether a call clears its pages anew.
    torch.empty((32 << 20) - (64 << 10), dtype=torch.uint8)
    session = None
    for line in sys.stdin:
        command = json.loads(line)
        answer = {}
        if "version" in command:
            answer = {"version": torch.__version__}
        elif "open" in command:
            session = Session(command)
        elif "make" in command:
            session.make(command)
        elif "run" in command:
            answer = session.run(command)
        elif "result" in command:
            answer = session.result(command)
        elif "close" in command:
            session = None
            gc.collect()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
