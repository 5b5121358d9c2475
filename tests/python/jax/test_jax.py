# SPDX-License-Identifier: Apache-2.0
"""aft.jax: the package's results under jit and vmap, and gradients beside JAX's own of the formula."""

import doctest
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aft
import aft.jax
from agreement import Judge
from draws import OPERATORS, case, flat

jax.config.update("jax_enable_x64", True)


def arguments(made):
    """The operands of a case as JAX arrays, and its keywords."""
    p = made.problem
    tree = (made.shaped(p.q), made.shaped(p.k), made.shaped(p.v), *made.bias())
    options = {name: x for name, x in made.options().items() if x is not None}
    if made.function in ("full", "simple"):
        del options["outside"]
    window = (aft.Window(*p.bias.window),) if made.function == "local" else ()
    return jax.tree_util.tree_map(jnp.asarray, tree), window, options


def call(made):
    operands, window, options = arguments(made)
    function = getattr(aft.jax, made.function)
    return operands, lambda *x: function(*x, *window, **options)


def differentiable(operands):
    """Which operands have a gradient; taps of a sparse filter are numbers of no kind that has one."""
    *first, last = operands
    if isinstance(last, aft.SparseFilter):
        return (*first, last.values), lambda *x: (*x[:-1], aft.SparseFilter(last.taps, x[-1]))
    return operands, lambda *x: x


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator(operator, dtype):
    made = case(operator, dtype)
    operands, function = call(made)
    judge = Judge(made.problem)
    for run in (function, jax.jit(function)):
        y = run(*operands)
        assert y.dtype == dtype
        judge.accept("y", np.asarray(y).reshape(made.problem.q.shape))
    floats, whole = differentiable(operands)
    dy = jnp.asarray(made.shaped(made.problem.dy))
    told = Judge(made.problem, given_lse=True)
    for differentiate in (lambda f: f, jax.jit):
        gradients = differentiate(lambda *x: jax.vjp(lambda *z: function(*whole(*z)), *x)[1](dy))(*floats)
        shapes = {"dq": made.problem.q.shape, "dk": made.problem.k.shape, "dv": made.problem.v.shape}
        for name, got in flat(gradients).items():
            got = np.asarray(got)
            told.accept(name, got.reshape(shapes.get(name, got.shape)))


@pytest.mark.parametrize("operator", ["full factorized", "local banded", "simple", "conv"])
def test_batches_by_vmap(operator):
    """One call for each element, with the bits that a batch has."""
    made = case(operator, np.float32)
    operands, function = call(made)
    axes = (0, 0, 0, *(None,) * (len(operands) - 3))
    each = jax.vmap(function, in_axes=axes)(*operands)
    assert np.asarray(each).tobytes() == np.asarray(function(*operands)).tobytes()
    every = jax.vmap(jax.grad(lambda *x: function(*x).sum(), argnums=2), in_axes=axes)(*operands)
    together = jax.grad(lambda *x: function(*x).sum(), argnums=2)(*operands)
    assert np.asarray(every).tobytes() == np.asarray(together).tobytes()


def test_options_and_no_q():
    made = case("full", np.float32, causal=True, gate="none", key_lengths=np.array([9, 4], np.int32),
                mask=np.arange(9) % 4 != 1)
    operands, function = call(made)
    want = made.forward()
    assert np.asarray(jax.jit(function)(*operands)).tobytes() == want.tobytes()
    none = aft.jax.full(None, *operands[1:], **arguments(made)[2])
    assert np.asarray(none).tobytes() == want.tobytes()
    q, k, v = operands[:3]
    for refused in (lambda: aft.jax.full(None, k, v, operands[3]), lambda: aft.jax.simple(None, k, v, gate="relu"),
                    lambda: aft.jax.local(None, k, v, operands[3], aft.Window(1, 1)),
                    lambda: aft.jax.conv(None, k, v, jnp.zeros((1, 3)))):
        with pytest.raises(ValueError, match="argument 'q': expected an array"):
            refused()


def test_a_filter_of_several_heads_to_a_key_channel():
    """Such a call keeps no lse, and its gradients come from nothing."""
    made = case("conv", np.float32, hk=2, heads=4, d=8)
    operands, function = call(made)
    judge = Judge(made.problem)
    dy = jnp.asarray(made.problem.dy)
    for name, got in flat(jax.vjp(function, *operands)[1](dy)).items():
        judge.accept(name, np.asarray(got))


def test_bfloat16():
    made = case("local", jnp.bfloat16.dtype)
    operands, function = call(made)
    y = jax.jit(function)(*operands)
    assert y.dtype == jnp.bfloat16
    assert np.asarray(y).tobytes() == made.forward().tobytes()


def test_errors_are_the_librarys():
    made = case("full", np.float32)
    (q, k, v, w), _, _ = arguments(made)
    with pytest.raises(Exception, match="argument 'w'|argument 'k'"):
        aft.jax.full(q, k, v, w[..., :-1]).block_until_ready()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.float16, jnp.bfloat16], ids=lambda t: t.__name__)
def test_arrays_of_jax_in_the_packages_own_calls(dtype):
    """Outside of jit and grad they are arrays like any other: read where they lie, and results are JAX's."""
    made = case("full", jnp.dtype(dtype))
    q, k, v, w, dy = map(jnp.asarray, (made.problem.q, made.problem.k, made.problem.v, made.bias()[0], made.problem.dy))
    results = aft.full(q, k, v, w, return_lse=True, return_average=True, **made.options())
    for got, want in zip(results, made.forward(return_lse=True, return_average=True)):
        assert isinstance(got, jax.Array) and np.asarray(got).tobytes() == want.tobytes()
    for got, want in zip(aft.full_backward(q, k, v, w, dy, **made.options()), made.backward()):
        assert isinstance(got, jax.Array) and np.asarray(got).tobytes() == want.tobytes()
    # They go on being values.
    doubled = jax.jit(lambda y: y + y)(results[0])
    assert np.asarray(doubled).tobytes() == np.asarray(results[0] + results[0]).tobytes()


def test_an_array_of_jax_is_no_place_for_a_result():
    q = jnp.ones((1, 3, 4))
    place = jnp.zeros_like(q)
    with pytest.raises(ValueError, match="argument 'out': expected memory that may be written, got a read-only array"):
        aft.simple(q, q, q, out=place)
    assert not np.asarray(place).any()
    out = np.zeros((1, 3, 4))
    assert aft.simple(q, q, q, out=out) is out and (out != 0).all()


def test_types(tmp_path):
    """mypy is content with the module where it takes it for source."""
    shutil.copytree(pathlib.Path(aft.__file__).parent, tmp_path / "aft", ignore=shutil.ignore_patterns("torch", "*.so"))
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", "--cache-dir",
                           "/dev/null", tmp_path / "aft/jax.py"], env={"MYPYPATH": str(tmp_path)}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page():
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/python/jax.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    session = doctest.DocTestParser().get_doctest("".join(blocks), {}, str(page), str(page), 0)
    assert len(session.examples) > 5
    assert doctest.DocTestRunner().run(session).failed == 0
