# SPDX-License-Identifier: Apache-2.0
"""The language model of examples/char_lm as a module of PyTorch: same arithmetic, other names of the weights."""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

import aft
import aft.torch

VOCABULARY = 256
MIXERS = ("simple", "local", "conv", "full")


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model. channels is a multiple of 16, which the C++ program asks for; heads are those of conv."""

    mixer: str = "local"
    context: int = 256
    channels: int = 192
    layers: int = 4
    heads: int = 16
    window: int = 32


def mixer_of(shape):
    """The layer of aft.torch.nn that stands for a mixer of the program, whose projections add nothing."""
    d, made = shape.channels, {"causal": True, "bias": False}
    if shape.mixer == "simple":
        return aft.torch.nn.AFTSimple(d, **made)
    if shape.mixer == "conv":
        return aft.torch.nn.AFTConv1d(d, shape.heads, shape.window, **made)
    # A bias of independent entries, as the program has it; the layers' own default are factors of a low rank. The
    # standard deviation is the program's, too.
    made.update(rank=None, initial_std=0.01)
    if shape.mixer == "full":
        return aft.torch.nn.AFTFull(d, shape.context, **made)
    return aft.torch.nn.AFTLocal(d, shape.context, aft.Window(before=shape.window - 1, after=0), **made)


class Block(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x)). forward: (B, T, d) to (B, T, d)."""

    def __init__(self, shape):
        super().__init__()
        d = shape.channels
        self.mixer_norm, self.mlp_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mixer = mixer_of(shape)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class CharacterModel(nn.Module):
    """Bytes to the logits of the byte that follows each. forward: int64 (B, T) to (B, T, 256), T at most context."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.bytes = nn.Embedding(VOCABULARY, shape.channels)
        self.positions = nn.Embedding(shape.context, shape.channels)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.channels)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        """The program's distributions. Blocks begin as the identity, so that deep ones do not drown the first steps."""
        fan_in = 1 / math.sqrt(self.shape.channels)
        for table in (self.bytes, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        for block in self.blocks:
            for layer in (block.mixer.query, block.mixer.key, block.mixer.value, block.up):
                nn.init.normal_(layer.weight, std=fan_in)
            for layer in (block.mixer.output, block.down):
                nn.init.zeros_(layer.weight)
            for layer in (block.up, block.down):
                nn.init.zeros_(layer.bias)

    def forward(self, text):
        x = self.bytes(text) + self.positions.weight[:text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.bytes.weight)

    def losses(self, text, following):
        """-log p of each byte that follows, in bits: (B, T), of the parameters' type."""
        logits = self(text).flatten(0, 1)
        return functional.cross_entropy(logits, following.flatten(), reduction="none").view(text.shape) / math.log(2)
