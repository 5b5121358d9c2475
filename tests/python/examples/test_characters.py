# SPDX-License-Identifier: Apache-2.0
"""A model trained in PyTorch goes on in the C++ program: examples/python writes the file, examples/char_lm reads it.

The environment's AFT_CHAR_LM is that program. The oracle is the module itself in double. A loss may differ from it by
three times what the module in float does, byte by byte, where nothing cancels (three as everywhere in these tests:
another order of the same sums), and by the rounding of the loss to float.
"""

import copy
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples/python"))
import checkpoint  # noqa: E402  pylint: disable=wrong-import-position
import draw_biases  # noqa: E402  pylint: disable=wrong-import-position
import train_characters  # noqa: E402  pylint: disable=wrong-import-position
from model import MIXERS, Shape  # noqa: E402  pylint: disable=wrong-import-position
from text import Text  # noqa: E402  pylint: disable=wrong-import-position

STOP, STEPS = 6, 10


@pytest.fixture(scope="module", name="data")
def words(tmp_path_factory):
    """Words in no order: enough for the model to learn their letters."""
    draw = random.Random(1)
    known = ["the", "king", "said", "unto", "him", "and", "of", "light", "water", "day", "night", "earth"]
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(" ".join(draw.choice(known) for _ in range(1500)), encoding="ascii")
    torch.set_num_threads(1)
    return path, Text(path, 32)


def started(mixer, data, dtype=torch.float32):
    settings = train_characters.Settings(batch=4, steps=STEPS, lr=1e-2,
                                         bias_scale=train_characters.BIAS_SCALES[mixer], seed=3)
    run = train_characters.Training(Shape(mixer, 32, 32, 2, 4, 8), settings, data[1], dtype)
    # Not from gains of 1 and weights of 0 on: after few steps, another order of those would be no other model.
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.2)
    return run


def continued(run, mixer, data, dtype):
    """The same run in another type: weights and moments are what they were."""
    other = started(mixer, data, dtype)
    # The optimizer keeps what it is given where the type fits, and would count the other run's steps.
    for name in ("model", "optimizer", "schedule"):
        getattr(other, name).load_state_dict(copy.deepcopy(getattr(run, name).state_dict()))
    other.bits, other.seconds = list(run.bits), list(run.seconds)
    return other


@pytest.fixture(scope="module", name="trained", params=MIXERS)
def trained_run(request, data, tmp_path_factory):
    run = started(request.param, data)
    for _ in range(STOP):
        run.step()
    path = tmp_path_factory.mktemp(request.param) / "model.safetensors"
    run.save(path)
    return request.param, run, path


def program(data, path, *options):
    """What the program says of the checkpoint: an entry of its results.json."""
    out = path.with_name("out")
    subprocess.run([os.environ["AFT_CHAR_LM"], "--text", data[0], "--load", path, "--threads", "1", "--generate", "0",
                    "--out", out, *options], check=True, capture_output=True, timeout=60)
    return json.loads((out / "results.json").read_text(encoding="utf-8"))["results"][0]


def allowed(in_float, in_double):
    """Of losses of every byte, (sequences, context)."""
    return (3 * (in_float - in_double).abs().mean() + 2**-24 * in_double.mean()).item()


def test_the_program_has_the_same_loss(trained, data):
    mixer, run, path = trained
    exact = continued(run, mixer, data, torch.float64).held_out_losses()
    bound = allowed(run.held_out_losses(), exact)
    said = program(data, path, "--eval-only")
    assert said["mixer"] == mixer and said["train_bits"] == run.bits
    assert abs(said["held_out_bits"] - exact.mean().item()) <= bound
    # And not because the loss would be the same anyway: any parameter backwards is ten times as far off.
    other = continued(run, mixer, data, torch.float64)
    for name, parameter in other.model.named_parameters():
        before = parameter.detach().clone()
        parameter.data.copy_(before.flatten().flip(0).view_as(before))
        assert abs(other.held_out_losses().mean() - exact.mean()) > 10 * bound, name
        parameter.data.copy_(before)


def test_the_program_goes_on(trained, data):
    mixer, run, path = trained
    exact, in_float = (continued(run, mixer, data, dtype) for dtype in (torch.float64, torch.float32))
    for _ in range(STOP, STEPS):
        exact.step()
        in_float.step()
    bound = allowed(in_float.held_out_losses(), exact.held_out_losses())
    said = program(data, path)
    assert said["train_bits"][:STOP] == run.bits and len(said["train_bits"]) == STEPS
    off = [abs(a - b) for a, b in zip(said["train_bits"][STOP:], exact.bits[STOP:])]
    # The program learns a filter itself, the module what it is made of: only the first step begins alike.
    assert max(off[:1] if mixer == "conv" else off) <= bound
    assert min(abs(a - b) for a, b in zip(exact.bits[STOP:], exact.bits[STOP - 1:])) > 10 * bound


def test_drawn_biases(trained, data, tmp_path):
    mixer, run, path = trained
    if mixer == "simple":
        with pytest.raises(ValueError, match="position biases"):
            checkpoint.read_biases(path)
        with pytest.raises(SystemExit, match="position biases"):
            draw_biases.main([str(path), str(tmp_path / "no.png")])
        assert not (tmp_path / "no.png").exists()
        return
    name, biases = checkpoint.read_biases(path)
    assert name == mixer
    assert [b.shape for b in biases] == 2 * [{"local": (32, 8), "full": (32, 32), "conv": (4, 8)}[mixer]]
    if mixer != "conv":
        assert all((block.mixer.bias_w[0].detach().numpy() == b).all() for block, b in zip(run.model.blocks, biases))
    # The program's own file is read as well.
    program(data, path, "--save", tmp_path / "again.safetensors")
    learned = checkpoint.read_biases(tmp_path / "again.safetensors")[1]
    assert [b.shape for b in learned] == [b.shape for b in biases] and (learned[0] != biases[0]).any()
    draw_biases.main([str(path), str(tmp_path / "biases.png")])
    assert (tmp_path / "biases.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_wrong_arguments(data, tmp_path, capsys):
    to = ["--text", str(data[0]), "--save", str(tmp_path / "none")]
    for wrong, said in ((["--dim", "40"], "--dim: expected a multiple of 16"), (["--steps", "0"], "--steps: expected"),
                        (["--window", "300"], "--window: expected at most --context, 256, got 300")):
        with pytest.raises(SystemExit):
            train_characters.main(to + wrong)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="expected at least 40961 bytes for a context of 4096"):
        train_characters.main(to + ["--context", "4096"])
    assert not (tmp_path / "none").exists()


def test_the_script(data, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    train_characters.main(["--text", str(data[0]), "--save", str(path), "--mixer", "conv", "--steps", "2",
                           "--batch", "2", "--context", "32", "--dim", "32", "--layers", "1", "--heads", "4",
                           "--window", "8", "--threads", "1"])
    said = capsys.readouterr().out
    held_out = float(said.split("held out: ")[1].split()[0])
    # Printed with six digits.
    assert abs(program(data, path, "--eval-only")["held_out_bits"] - held_out) < 2e-6
    assert f"--load {path} --eval-only" in said
