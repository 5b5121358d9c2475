# SPDX-License-Identifier: Apache-2.0
"""Type checkers know what calls take and return."""

import pathlib
import shutil
import subprocess
import sys

import pytest

import aft

PACKAGE = pathlib.Path(aft.__file__).parent
RIGHT = """
import numpy as np
import numpy.typing as npt

import aft

x: npt.NDArray[np.float32] = np.zeros((1, 2, 8), np.float32)
w = np.zeros((2, 2), np.float32)
y: npt.NDArray[np.float32] = aft.full(x, x, x, w, causal=True, gate="none", key_lengths=[1])
one, lse, average = aft.local(None, x, x, aft.Banded(w), aft.inclusive(1), return_lse=True, return_average=True)
two: npt.NDArray[np.float32] = one
dq, dk, dv, dbias = aft.full_backward(x, x, x, aft.Factorized(w, w), x, lse=lse, average=average)
factors: aft.Factorized = dbias
stream = aft.Stream.local(8, 8, aft.strict(2), dtype=np.float32, slots=1)
aft.simple(x, x, x, stream=stream, out=y)
aft.conv_backward(x, x, x, w, x, out=(x, None, None, w))
shifted: npt.NDArray[np.float32] = aft.reparameterize(w, w[0], w[1])
"""
WRONG = {
    "aft.simple([1.0], [1.0], [1.0])": "call-overload",
    "aft.simple(x, x, x, casual=True)": "call-overload",
    "aft.full(x, x, x)": "call-overload",
    "aft.simple(x, x, x, gate=1)": "call-overload",
    "aft.Stream.simple(8, 8)": "call-arg",
    "aft.strict('1')": "arg-type",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package where mypy takes it for source: what is installed it does not look into. aft.torch and
    aft.jax are not part of it."""
    folder = tmp_path_factory.mktemp("types")
    shutil.copytree(PACKAGE, folder / "aft", ignore=shutil.ignore_patterns("torch", "jax.py", "*.so", "__pycache__"))
    return folder


def check(folder, *arguments):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", "/dev/null"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env={"MYPYPATH": str(folder)})
    assert not done.stderr, done.stderr
    return done


def test_the_package_itself(copy):
    assert (copy / "aft/py.typed").exists()
    files = sorted([*copy.glob("aft/*.py"), *copy.glob("aft/*.pyi")])
    done = check(copy, *files)
    assert done.returncode == 0 and f"no issues found in {len(files)} source files" in done.stdout, done.stdout


def test_right_and_wrong_calls(copy):
    right, wrong = copy / "right.py", copy / "wrong.py"
    right.write_text(RIGHT, encoding="utf-8")
    head = "import numpy as np\nimport aft\nx = np.zeros((1, 2, 8), np.float32)\n"
    wrong.write_text(head + "\n".join(WRONG) + "\n", encoding="utf-8")
    done = check(copy, right, wrong)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in found if "right.py" in line], done.stdout
    for number, (call, kind) in enumerate(WRONG.items(), head.count("\n") + 1):
        assert any(f"wrong.py:{number}:" in line and f"[{kind}]" in line for line in found), f"{call}\n{done.stdout}"


@pytest.mark.parametrize("name", ["full", "local", "simple", "conv"])
def test_keywords_are_those_of_the_types(name):
    """What type checkers are told of keywords is what the functions take."""
    import inspect

    from aft._arguments import Options

    for function, more in ((getattr(aft, name), {"stream", "slot_ids", "out", "return_lse", "return_average"}),
                           (getattr(aft, f"{name}_backward"), {"lse", "average", "out"})):
        keywords = {p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY}
        assert keywords == set(Options.__annotations__) | more
