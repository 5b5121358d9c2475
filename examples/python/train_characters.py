#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of examples/char_lm in PyTorch, and writes a checkpoint that the C++ program goes on from.

Batches, rates and the optimizer are that program's, and so are the options' names. With --stop-at it goes on
training; without, it evaluates and writes text.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
import time

import torch

import aft.torch

import checkpoint
import model as models
from text import Text

# By which position biases learn faster than the rest: the program's, measured on the King James Bible.
BIAS_SCALES = {"simple": 1, "local": 30, "full": 30, "conv": 10}
WARM_UP, CLIP, DECAY = 60, 1.0, 0.1


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides a run beside the model's shape."""

    batch: int = 16
    steps: int = 500
    lr: float = 3e-3
    bias_scale: float = 1
    seed: int = 1


def share_of_rate(settings):
    """Function of the step, from 0 on: a linear warm-up, then half a cosine down to 0."""
    warm_up = min(WARM_UP, settings.steps // 4)

    def share(step):
        if step < warm_up:
            return (step + 1) / warm_up
        part = (step - warm_up) / max(1, settings.steps - warm_up)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, part)))
    return share


class Training:
    """A run that has gone len(bits) steps."""

    def __init__(self, shape, settings, data, dtype=torch.float32):
        torch.manual_seed(settings.seed)
        self.settings, self.data = settings, data
        self.model = models.CharacterModel(shape).to(dtype)
        others, biases = aft.torch.parameter_groups(self.model, settings.lr, settings.bias_scale)
        # Decay pulls at matrices alone: a gain has no reason to be near 0, nor has a bias.
        matrices = {**others, "params": [p for p in others["params"] if p.dim() > 1], "weight_decay": DECAY}
        vectors = {**others, "params": [p for p in others["params"] if p.dim() == 1]}
        groups = [group for group in (matrices, vectors, biases) if group["params"]]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-8, weight_decay=0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share_of_rate(settings))
        self.bits, self.seconds = [], []

    def step(self):
        """One step; returns the loss before it, in bits a byte."""
        start = time.perf_counter()
        batch = self.data.batch(self.settings.seed, len(self.bits), self.settings.batch)
        loss = self.model.losses(*batch).mean()
        self.optimizer.zero_grad()
        # The program's gradients are those of nats, and clipping knows their size.
        (loss * math.log(2)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.schedule.step()
        self.bits.append(loss.item())
        self.seconds.append((self.seconds or [0.0])[-1] + time.perf_counter() - start)
        return self.bits[-1]

    @torch.no_grad()
    def held_out_losses(self):
        """Bits of every byte in the held-out part, (sequences, context)."""
        return torch.cat([self.model.losses(*batch) for batch in self.data.held_out(self.settings.batch)])

    def save(self, path):
        """Writes a checkpoint; see checkpoint.write."""
        checkpoint.write(path, self.model, self.optimizer, self.settings, self.data, self.bits, self.seconds)


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, type=pathlib.Path, help="what to learn; its last tenth is held out")
    parser.add_argument("--save", required=True, type=pathlib.Path, help="checkpoint to write (safetensors)")
    parser.add_argument("--mixer", choices=models.MIXERS, default="local")
    for name, number, meaning in (("steps", 500, "training steps"), ("batch", 16, "sequences a step"),
                                  ("context", 256, "bytes in a sequence"), ("dim", 192, "channels, a multiple of 16"),
                                  ("layers", 4, "blocks"), ("heads", 16, "filters of conv; a divisor of --dim"),
                                  ("window", 32, "keys in the window of local, taps of conv"),
                                  ("seed", 1, "names the initial weights and the batches")):
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{meaning} ({number})")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate (0.003)")
    parser.add_argument("--stop-at", type=int, help="the last step here; the program takes the others")
    parser.add_argument("--threads", type=int, help="PyTorch's choice by default")
    line = parser.parse_args(arguments)
    positive = ("steps", "batch", "context", "dim", "layers", "heads", "window", "lr", "stop_at", "threads")
    for name in positive:
        value = getattr(line, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')}: expected a number above 0, got {value}")
    if not 0 <= line.seed < 2**64:
        parser.error(f"--seed: expected a number of 64 bits, got {line.seed}")
    if line.dim % 16 or line.dim % line.heads:
        parser.error(f"--dim: expected a multiple of 16 and of --heads, {line.heads}, got {line.dim}")
    if line.window > line.context:
        parser.error(f"--window: expected at most --context, {line.context}, got {line.window}")
    return line


def main(arguments=None):
    line = parsed(arguments)
    if line.threads:
        torch.set_num_threads(line.threads)
    shape = models.Shape(line.mixer, line.context, line.dim, line.layers, line.heads, line.window)
    settings = Settings(line.batch, line.steps, line.lr, BIAS_SCALES[line.mixer], line.seed)
    try:
        run = Training(shape, settings, Text(line.text, line.context))
    except (OSError, ValueError) as wrong:
        sys.exit(f"train_characters.py: {wrong}")
    end = min(line.stop_at or line.steps, line.steps)
    for step in range(1, end + 1):
        bits = run.step()
        if step % 50 == 0 or step == end:
            print(f"step {step} of {line.steps}: {bits:.3f} bits a byte, {run.seconds[-1]:.0f} s")
    run.save(line.save)
    print(f"held out: {run.held_out_losses().double().mean():.6f} bits a byte")
    print(f"go on:    char_lm --text {line.text} --load {line.save}{' --eval-only' if end == line.steps else ''}")


if __name__ == "__main__":
    main()
