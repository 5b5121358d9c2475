# SPDX-License-Identifier: Apache-2.0
"""The text that is learned, cut and drawn as examples/char_lm does it: the same seed and step give the same batch."""

import pathlib

import torch

WORD = (1 << 64) - 1
BATCHES = 1  # the program's number for this use of its random streams


def fnv1a(data, value=0xCBF29CE484222325):
    """FNV-1a of bytes, 64 bits, going on from `value`. Some ten million bytes a second."""
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & WORD
    return value


def mixed(z):
    """SplitMix64's last step."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def draws(seed, purpose, index):
    """SplitMix64 (Steele, Lea and Flood 2014), with a stream for each (seed, purpose, index): numbers in [0, 1)."""
    state = mixed(mixed(mixed(seed) ^ purpose) ^ index)
    while True:
        state = state + 0x9E3779B97F4A7C15 & WORD
        yield (mixed(state) >> 11) * 2.0**-53


class Text:
    """The bytes of a file; the last tenth is held out. Raises ValueError where that has no sequence of `context`."""

    def __init__(self, path, context):
        self.data = pathlib.Path(path).read_bytes()
        self.context, self.trained = context, len(self.data) * 9 // 10
        if len(self.data) - self.trained < context + 1:
            raise ValueError(f"{path}: expected at least {10 * context + 1} bytes for a context of {context}, got "
                             f"{len(self.data)}")
        self.values = torch.tensor(list(self.data))

    def rows(self, starts):
        """Sequences from there on, and the bytes that follow each of theirs: int64, (B, context) both."""
        rows = torch.stack([self.values[start:start + self.context + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    def batch(self, seed, step, size):
        """Random sequences of the part that is learned."""
        numbers = draws(seed, BATCHES, step)
        return self.rows([int(next(numbers) * (self.trained - self.context)) for _ in range(size)])

    def held_out(self, size):
        """The rest in sequences one after the other, `size` at a time."""
        starts = range(self.trained, len(self.data) - self.context, self.context)
        for first in range(0, len(starts), size):
            yield self.rows(starts[first:first + size])

    def fingerprint(self):
        """By which the program knows a checkpoint's text again."""
        return fnv1a(self.data)
