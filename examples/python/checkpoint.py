# SPDX-License-Identifier: Apache-2.0
"""A model with its optimizer as a file that examples/char_lm loads: safetensors, with the names of that program."""

import os
import pathlib

import safetensors.torch
import torch

import aft.torch

import text

# How tensors of the module become one of the file. The program multiplies rows by (in, out) matrices, so that those of
# nn.Linear are transposed, and three of them side by side are one product.
FORMS = {
    "same": lambda parts: parts[0],
    "transposed": lambda parts: torch.cat(parts).t(),
    "one head": lambda parts: parts[0][0],
}
HEAD = (("embedding.bytes", "same", ("bytes.weight",)),
        ("embedding.positions", "same", ("positions.weight",)),
        ("head.norm.gain", "same", ("norm.weight",)),
        ("head.norm.bias", "same", ("norm.bias",)))
BLOCK = (("mixer.norm.gain", "same", ("mixer_norm.weight",)),
         ("mixer.norm.bias", "same", ("mixer_norm.bias",)),
         ("mixer.project", "transposed", ("mixer.query.weight", "mixer.key.weight", "mixer.value.weight")),
         ("mixer.bias", "one head", ("mixer.bias_w",)),
         ("mixer.output", "transposed", ("mixer.output.weight",)),
         ("mlp.norm.gain", "same", ("mlp_norm.weight",)),
         ("mlp.norm.bias", "same", ("mlp_norm.bias",)),
         ("mlp.up", "transposed", ("up.weight",)),
         ("mlp.up_bias", "same", ("up.bias",)),
         ("mlp.down", "transposed", ("down.weight",)),
         ("mlp.down_bias", "same", ("down.bias",)))


def table(model):
    """(name in the file, form, names in state_dict) of all tensors but filters, which have no such form."""
    known = model.state_dict()
    rows = [*HEAD, *((f"block.{layer}.{name}", form, tuple(f"blocks.{layer}.{part}" for part in parts))
                     for layer in range(model.shape.layers) for name, form, parts in BLOCK)]
    return [row for row in rows if all(part in known for part in row[2])]


@torch.no_grad()
def tensors(model, optimizer):
    """Weights, and the moments of Adam beside them, by the file's names: float32."""
    parameters = dict(model.named_parameters())
    of = {"": lambda p: p,
          "adam.first.": lambda p: optimizer.state[p]["exp_avg"],
          "adam.second.": lambda p: optimizer.state[p]["exp_avg_sq"]}
    found = {prefix + name: FORMS[form]([value(parameters[part]) for part in parts])
             for prefix, value in of.items() for name, form, parts in table(model)}
    if model.shape.mixer == "conv":
        for layer, block in enumerate(model.blocks):
            mixer, name = block.mixer, f"block.{layer}.mixer.bias"
            found[name] = aft.torch.reparameterize(mixer.filter, mixer.gain, mixer.shift)
            # The program learns the filter itself, not what it is made of here: its moments begin anew.
            for moment in ("adam.first.", "adam.second."):
                found[moment + name] = torch.zeros_like(found[name])
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def metadata(shape, settings, data, step):
    """What the program reads beside the tensors. Numbers that are not whole are hexadecimal, so that no bit is lost."""
    return {"format": "aft char_lm 1", "mixer": shape.mixer, "context": str(shape.context),
            "dim": str(shape.channels), "layers": str(shape.layers), "heads": str(shape.heads),
            "window": str(shape.window), "tied_keys": "1", "batch": str(settings.batch), "steps": str(settings.steps),
            "lr": settings.lr.hex().removeprefix("0x"),
            "bias_lr_scale": float(settings.bias_scale).hex().removeprefix("0x"), "seed": str(settings.seed),
            "step": str(step), "text_fnv1a": str(data.fingerprint())}


def write(path, model, optimizer, settings, data, bits, seconds):
    """Writes `path` whole or not at all.

    model: float32 or float64, which is rounded. optimizer: AdamW over its parameters, after len(bits) steps.
    settings: with batch, steps, lr, bias_scale and seed. data: the Text that was learned. bits, seconds: for each step
    its loss, and the time since the first began. Raises OSError. Costs a second for each ten million bytes, for their
    checksum.
    """
    found = tensors(model, optimizer)
    found["history.bits"] = torch.tensor(bits, dtype=torch.float64)
    found["history.seconds"] = torch.tensor(seconds, dtype=torch.float64)
    header = metadata(model.shape, settings, data, len(bits))
    said = b"".join(word.encode() + b"\0" for pair in sorted(header.items()) for word in pair)
    # The sum goes into the header and covers what comes behind it, in the order that the package chooses.
    plain = safetensors.torch.save(found)
    behind = plain[8 + int.from_bytes(plain[:8], "little"):]
    header["fnv1a"] = str(text.fnv1a(behind, text.fnv1a(said)))
    beside = pathlib.Path(path).with_name(pathlib.Path(path).name + ".part")
    beside.write_bytes(safetensors.torch.save(found, metadata=header))
    os.replace(beside, path)


def read_biases(path):
    """(mixer, position biases of the blocks in order) of a checkpoint, also one that the program wrote.

    Biases are float32 arrays of NumPy: (context, window) for local, (context, context) for full, (heads, window) for
    conv. Raises ValueError for other files of the format and for models that have none, SafetensorError for the rest.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        said, names = file.metadata() or {}, set(file.keys())
        biases = [f"block.{layer}.mixer.bias" for layer in range(int(said.get("layers", 0)))]
        found = [file.get_tensor(name) for name in biases if name in names]
    if not found:
        raise ValueError(f"{path}: expected a checkpoint with position biases, got mixer {said.get('mixer')}")
    return said["mixer"], found
