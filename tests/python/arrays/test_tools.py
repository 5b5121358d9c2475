# SPDX-License-Identifier: Apache-2.0
"""What looks at a filter alone, attention_map, and what the package says of itself."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import aft
import oracle
from agreement import DTYPES, ulp
from draws import Draw, case

EPS = np.finfo(np.float64).eps


def reparameterized(r, gain, shift, dout=None):
    """AFT Eq. 8 and its gradients in the widest type, one head after the other."""
    out, dr = np.zeros(r.shape, np.longdouble), np.zeros(r.shape, np.longdouble)
    dgain, dshift = np.zeros(len(r), np.longdouble), np.zeros(len(r), np.longdouble)
    for h, row in enumerate(r.astype(np.longdouble)):
        deviation = row.std(ddof=1) if row.size > 1 else np.longdouble(0)
        z = np.zeros_like(row) if deviation == 0 else (row - row.mean()) / deviation
        out[h] = gain[h].astype(np.longdouble) * z + shift[h].astype(np.longdouble)
        if dout is not None and deviation != 0:
            g = dout[h].astype(np.longdouble)
            dgain[h], dshift[h] = (g * z).sum(), g.sum()
            dr[h] = gain[h].astype(np.longdouble) / deviation * (g - g.mean() - z * dgain[h] / (row.size - 1))
        elif dout is not None:
            dshift[h] = dout[h].astype(np.longdouble).sum()
    return out, dr, dgain, dshift


def close(got, exact):
    """Sums over a head are in double, a few units of the largest number; what is stored rounds once more."""
    size = max(1, abs(exact).max(initial=0))
    allowed = 64 * EPS * size + ulp(got.dtype, exact) / 2
    assert (abs(got.astype(np.longdouble) - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("taps", [(5,), (3, 4), (2, 3, 2)])
def test_reparameterize(dtype, taps):
    draw = Draw(dtype, taps)
    r, dout, gain, shift = draw(3, *taps), draw(3, *taps), draw(3), draw(3)
    exact = reparameterized(r, gain, shift, dout)
    out = aft.reparameterize(r, gain, shift)
    assert out.dtype == dtype and out.shape == r.shape
    close(out, exact[0])
    for got, expected in zip(aft.reparameterize_backward(r, gain, shift, dout), exact[1:]):
        close(got, expected)


def test_filters_without_a_deviation():
    gain, shift = np.array([2.0, 3.0]), np.array([0.5, -1.0])
    for r in (np.full((2, 4), 7.0), np.array([[1.0], [2.0]])):
        assert (aft.reparameterize(r, gain, shift) == shift[:, None]).all()
        dr, dgain, dshift = aft.reparameterize_backward(r, gain, shift, np.ones_like(r))
        assert not dr.any() and not dgain.any() and (dshift == r.shape[1]).all()


def test_places_of_reparameterize():
    draw = Draw(np.float32, "places")
    r, gain, shift = draw(2, 5), draw(2), draw(2)
    out = np.empty_like(r)
    assert aft.reparameterize(r, gain, shift, out=out) is out
    assert out.tobytes() == aft.reparameterize(r, gain, shift).tobytes()
    whole, place = aft.reparameterize_backward(r, gain, shift, out), np.empty_like(gain)
    got = aft.reparameterize_backward(r, gain, shift, out, out=(None, place, None))
    assert got[0] is None and got[1] is place and got[2] is None and place.tobytes() == whole[1].tobytes()
    with pytest.raises(ValueError, match="a tuple of 3"):
        aft.reparameterize_backward(r, gain, shift, out, out=place)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("taps", [(5,), (3, 4), (2, 3, 2)])
def test_sparsity(dtype, taps):
    """filter_entropy and gumbel_filter, their gradients, and the form of inference, by their formulas."""
    draw, tau = Draw(dtype, "sparsity", taps), 0.5
    r, noise, dout, spread = draw(3, *taps), draw(3, *taps), draw(3, *taps), draw(3)
    wide, g, up = (x.astype(np.longdouble).reshape(3, -1) for x in (r, noise, dout))

    def softmax(x):
        weights = np.exp(x - x.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    p, sample = softmax(wide), softmax((wide + g) / tau)
    entropy = -(p * np.log(p)).sum(1)
    got = aft.filter_entropy(r)
    assert got.dtype == dtype and got.shape == (3,)
    close(got, entropy)
    close(aft.filter_entropy_backward(r, spread),
          (-spread.astype(np.longdouble)[:, None] * p * (np.log(p) + entropy[:, None])).reshape(r.shape))
    close(aft.gumbel_filter(r, noise, tau), (wide * sample).reshape(r.shape))
    product = up * wide
    mean = (sample * product).sum(1, keepdims=True)
    close(aft.gumbel_filter_backward(r, noise, tau, dout), (sample * (up + (product - mean) / tau)).reshape(r.shape))
    out = np.empty_like(r)
    assert aft.gumbel_filter_hard(r, out=out) is out
    first = np.arange(wide.shape[1]) == wide.argmax(1)[:, None]
    assert (out.reshape(3, -1) == np.where(first, wide, 0)).all()


def test_refused_temperatures():
    r = np.ones((2, 3))
    for tau in (0, -1.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="'tau': expected a finite number above 0"):
            aft.gumbel_filter(r, r, tau)
    with pytest.raises(TypeError, match="'tau': expected a number"):
        aft.gumbel_filter(r, r, "warm")
    with pytest.raises(ValueError, match="'noise'"):
        aft.gumbel_filter(r, r[:, :2], 1)


@pytest.mark.parametrize("operator", ["full", "full factorized"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"key_lengths": [4, 7], "query_lengths": [9, 2]},
                                     {"tq": 4, "causal": True, "first_query": 3}], ids=str)
def test_attention_map(operator, options):
    made = case(operator, np.float64, **options)
    p = made.problem
    keep = {name: options[name] for name in options if name != "tq"}
    for channels in (None, 8):
        got = aft.attention_map(p.k, *made.bias(), channels=channels, **keep)
        count = channels or p.k.shape[2]
        # The weights are the averages of values that are 1 at one key.
        exact = np.zeros((2, p.q.shape[1], p.k.shape[1], count), np.longdouble)
        for s in range(p.k.shape[1]):
            v = np.zeros((2, p.k.shape[1], count))
            v[:, s] = 1
            one = oracle.Problem(np.zeros((2, p.q.shape[1], count)), p.k, v, p.bias, **keep)
            exact[:, :, s] = one.evaluate(np.longdouble)[0]["average"]
        assert got.shape == exact.shape
        # Exponents of a few units, rounded once each, and a quotient: 32 units of double of a weight of 1.
        assert (abs(got - exact) <= 32 * EPS).all()
    assert aft.attention_map(p.k[0], *made.bias()).ndim == 3
    out = np.empty(got.shape, np.float32)
    assert aft.attention_map(p.k, *made.bias(), out=out, **keep) is out
    assert out.tobytes() == got.astype(np.float32).tobytes()


def test_a_map_of_masked_pairs():
    made = case("full", np.float32)
    mask = Draw(np.float32, "map").random.random((9, 9)) < 0.5
    assert not aft.attention_map(made.problem.k, made.problem.bias.w, mask=mask)[:, ~mask].any()


def test_windows():
    assert aft.strict(3) == aft.Window(2, 2) and aft.inclusive(3) == aft.Window(3, 3)
    assert aft.strict(0) == aft.Window(-1, 0)
    made = case("local", np.float32)
    p = made.problem
    none = aft.local(p.q, p.k, p.v, p.bias.w, aft.strict(0))
    assert none.tobytes() == aft.local(p.q, p.k, p.v, 2 * p.bias.w, (-1, 0)).tobytes()


def test_what_it_is():
    assert re.fullmatch(r"\d+\.\d+\.\d+", aft.__version__)
    assert aft.build_info().startswith(f"aft {aft.__version__}, ")
    assert aft.isa() in ("v2", "v3", "v4", "v4-bf16", "neon", "neon-bf16")
    environment = {"AFT_ISA": aft.isa(), "PYTHONPATH": str(pathlib.Path(aft.__file__).parent.parent)}
    told = subprocess.run([sys.executable, "-c", "import aft; print(aft.isa())"], capture_output=True, text=True,
                          check=True, env=environment)
    assert told.stdout.strip() == aft.isa()


def test_everything_is_documented():
    for name in aft.__all__:
        if name != "__version__":
            assert len(getattr(aft, name).__doc__) > 40, name
    for name in ("full", "local", "simple", "conv"):
        assert "AFT Eq." in getattr(aft, name).__doc__ and "Cost:" in getattr(aft, name).__doc__
        assert "AFT Eq." in getattr(aft, f"{name}_backward").__doc__


def test_what_the_extension_links():
    """Names of libraries stand in it as they are. Python's own is the interpreter's, which may be none."""
    linked = set(re.findall(rb"\blib[\w+-]+\.so[.\d]*", pathlib.Path(aft._core.__file__).read_bytes()))
    assert {name.split(b".")[0].split(b"-")[0] for name in linked} <= {
        b"lib" + name for name in (b"c", b"m", b"gcc_s", b"stdc++", b"gomp", b"pthread", b"dl", b"cudart")}, linked


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys, aft; sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'ml_dtypes', 'aft.torch')))"
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={"PYTHONPATH": str(pathlib.Path(aft.__file__).parent.parent)})
