# SPDX-License-Identifier: Apache-2.0
"""What the recorder saw: calls with their launches and scratch, and what sizes of a call follow from its name."""

import json
import re
import subprocess

import sass


def recorded(recorder, device):
    """Calls, in order: {"case", "type", "pass", "launches": [[kernel, blocks, threads, dynamic]], "scratch", "cleared"}."""
    text = subprocess.run([str(recorder), device], capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    names = sass.short_names([line.get("kernel", "none") for line in lines])
    calls = []
    for line in lines:
        if "case" in line:
            calls.append({**line, "launches": [], "scratch": 0, "cleared": 0})
        elif "kernel" in line:
            calls[-1]["launches"].append([names[line["kernel"]], line["blocks"], line["threads"], line["dynamic"]])
        else:
            for what, bytes_ in line.items():
                calls[-1][what] += bytes_
    return calls


def key_of(call):
    return f"{call['case']}, {call['type']}, {call['pass']}"


class sizes:
    """Of a call. Pairs are those of one column; keys that a window leaves out are summed once for all rows. Sequences of a packed
    call are one batch element, one after the other. A step is one position of each slot, which sees what that keeps."""

    FOLD = 24  # numbers that a step reads and writes of a channel's fold: twice slot_layout::fold_arrays

    def __init__(self, name):
        def number(pattern, otherwise=0):
            match = re.search(pattern, name)
            return int(match.group(1)) if match else otherwise
        words = name.split()
        self.packed, self.step = words[0] == "packed", words[0] == "step"
        self.op = words[1 if self.packed else 2 if self.step else 0]
        self.B, self.d = number(r"B(\d+)"), number(r"d(\d+)")
        self.side, self.taps = number(r"conv (\d+)x"), number(r"k=(\d+)")
        self.T = self.side ** 2 if self.side else number(r"T(\d+)")
        self.heads = number(r"heads (\d+)", 1)
        self.keys = self.heads if 1 < self.heads < self.d else self.d
        self.causal = "causal" in name
        self.window = number(r"s=(\d+)")
        self.rank = number(r"rank (\d+)")
        self.lengths = [self.T]
        if self.packed:
            spread = number(r"spread (\d+)")
            self.lengths = [self.T - spread + n * 2 * spread // (self.B - 1) for n in range(self.B)]
            self.B = 1
        if self.step:
            self.lengths = [1]
            self.kept = {"simple": 0, "local": self.window, "conv": self.taps, "full": number(r"at (\d+)")}[self.op]

    def rows(self):
        return self.B * sum(self.lengths)

    def elements(self):
        return self.rows() * self.d

    def reach(self, length):
        """Positions back and ahead that a row sees pair by pair."""
        if self.op == "conv":
            half = self.taps // 2 * (self.side + 1)
            return half, half
        back = self.window - 1 if self.window else length
        return back, 0 if self.causal else back

    def visible(self):
        """Pairs that any implementation has to sum."""
        if self.step:
            return self.kept
        if self.op == "simple":
            return 0
        if self.op == "conv":
            half = self.taps // 2
            axis = sum(min(self.side - 1, i + half) - max(0, i - half) + 1 for i in range(self.side))
            return axis ** 2
        total = 0
        for length in self.lengths:
            back, ahead = self.reach(length)
            total += sum(min(length - 1, t + ahead) - max(0, t - back) + 1 for t in range(length))
        return total

    def tile_pairs(self, rows, depth):
        """Pairs in the tiles that rows, taken so many at a time, touch."""
        if self.op == "simple" or self.step:
            return 0
        total = 0
        for length in self.lengths:
            back, ahead = self.reach(length)
            for first in range(0, length, rows):
                last = min(first + rows, length) - 1
                begin, end = max(0, first - back), min(length - 1, last + ahead)
                total += rows * depth * (end // depth - begin // depth + 1)
        return total

    def row_tiles(self, rows):
        return sum(-(-length // rows) for length in self.lengths)

    def bias_elements(self):
        if self.op == "full":
            return max(self.lengths) ** 2
        return {"factorized": 2 * self.T * self.rank, "local": self.T * (2 * self.window - 1),
                "conv": self.heads * self.taps ** 2}.get(self.op, 0)

    def least_bytes(self, width, backward):
        """q, k, v and y once, and the bias; with gradients all twice more: what is read again, and what is written."""
        if self.step:
            fold = 0 if self.op == "full" else self.FOLD
            return self.B * self.d * (4 * (2 * self.kept + fold) + 4 * width)
        once = width * (self.rows() * (3 * self.d + self.keys) + self.bias_elements())
        return once * (3 if backward else 1)

    def least_multiply_adds(self, backward):
        """num and den of every pair of every column; with gradients the products of dk and dv and of the bias too."""
        return 2 * self.visible() * self.B * self.d * (3 if backward else 1)
