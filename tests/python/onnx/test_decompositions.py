# SPDX-License-Identifier: Apache-2.0
"""The functions of standard operators, called as they are: against the formulas in NumPy's float64."""

import numpy
import pytest
import torch
from tensor_cases import CASES, KINDS, WINDOW, B, D, names

import aft.torch
from aft.torch.onnx import decompositions, sums

# A sum is over at most 12 pairs, a product's exponents are within 21 + 12 for the terms that count, and each of them
# is rounded twice: 128 roundings of numbers below 25 bound the gate times the average, and lse.
BOUND = 128 * 25 * 2.0 ** -53
INF, NAN = float("inf"), float("nan")


def run(case, tensors, **more):
    """y, lse and average of the case by its decomposition."""
    values = {**case.options, **more}
    op = getattr(torch.ops.aft, case.operator).default
    values = {name: torch.tensor(x) if isinstance(x, list) else x for name, x in values.items()}
    with_lse = "heads-share-keys" not in case.name
    arguments = list(op._schema.arguments)
    given = list(case.op_arguments(*tensors))
    left = [values.pop(a.name, a.default_value) for a in arguments[len(given):-2]]
    assert not values
    return decompositions.TABLE[op](*given, *left, with_lse, True)


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_formulas(case):
    tensors = case.tensors()
    for mine, formula in zip(run(case, tensors), case.expected(*tensors)):
        if mine.shape[0] == 0:
            assert "heads-share-keys" in case.name
            continue
        numpy.testing.assert_allclose(mine.numpy(), formula, rtol=0, atol=BOUND)


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_shapes_and_types_are_those_of_the_ops(case):
    for dtype in (torch.float32, torch.bfloat16):
        tensors = case.tensors(dtype)
        values = case.call(*tensors)
        mine, lse, _ = run(case, tensors)
        assert (mine.shape, mine.dtype, lse.dtype) == (values.shape, values.dtype, torch.float32)


def test_the_product_is_proven_where_it_is_right():
    """0 / 0 of the product: every term has a factor of e^-120, and float32 knows none below e^-104."""
    k, v = (torch.tensor(x)[None, :, None].repeat(1, 1, D) for x in ([60.0, -60.0], [1.0, 2.0]))
    w = torch.tensor([[-60.0, 60.0], [0.0, 0.0]])[None, None]
    product, _, proven = sums.by_product(k.mT[:, :, None], v.mT[..., None], w, None, 1)
    assert not proven and product[0, 0, 0, 0] == 0
    average, lse = sums.averages(k, v, w, None, None)
    # e^0 each, then e^60 against e^-60.
    torch.testing.assert_close(average[0, :, 0], torch.tensor([1.5, 1.0]), rtol=0, atol=4 * 2.0 ** -24)
    torch.testing.assert_close(lse[0, :, 0], torch.tensor([2.0, 1.0]).log() + torch.tensor([0.0, 60.0]))
    small = k / 60
    assert sums.by_product(small.mT[:, :, None], v.mT[..., None], w / 60, None, 1)[2]


@pytest.mark.parametrize("case", [KINDS[0], KINDS[8]], ids=names([KINDS[0], KINDS[8]]))
def test_what_is_hidden_does_not_matter(case):
    q, k, v, *bias = case.tensors()
    lengths = [3, 5]
    want = run(case, (q, k, v, *bias), key_lengths=lengths, query_lengths=lengths)
    for x, rest in ((q, NAN), (k, INF), (v, NAN)):
        x[0, 3:] = rest
    for mine, plain in zip(run(case, (q, k, v, *bias), key_lengths=lengths, query_lengths=lengths), want):
        assert torch.equal(mine, plain)
    assert not want[0][0, 3:].any() and (want[1][0, 3:] == -INF).all()


@pytest.mark.parametrize("case", [KINDS[0], KINDS[8]], ids=names([KINDS[0], KINDS[8]]))
def test_later_keys_do_not_reach_earlier_rows(case):
    q, k, v, *bias = case.tensors()
    want = run(case, (q, k, v, *bias), causal=True)
    for later in (NAN, 1000.0):
        k[0, 3:] = later
        for mine, plain in zip(run(case, (q, k, v, *bias), causal=True), want):
            torch.testing.assert_close(mine[0, :3], plain[0, :3], rtol=0, atol=BOUND)
            assert mine[0, 3:].isnan().all() == (later != later)
            torch.testing.assert_close(mine[1], plain[1], rtol=0, atol=BOUND)


def test_rows_that_see_nothing():
    case = KINDS[0]
    q, k, v, w = case.tensors()
    w[2] = -INF
    y, lse, average = run(case, (q, k, v, w))
    for mine, whole in zip((y, lse, average), aft.torch.full(q, k, v, w, return_lse=True, return_average=True)):
        torch.testing.assert_close(mine, whole, rtol=0, atol=BOUND)
    assert not y[:, 2].any() and not average[:, 2].any() and (lse[:, 2] == -INF).all()


@pytest.mark.parametrize("window", [(0, 0), (-2, 2), (0, -1), (9, 9), (-1, 3)])
@pytest.mark.parametrize("first_query", [0, 3])
def test_windows(window, first_query):
    """Windows without the row itself, without any key, and beyond the sequence; entries outside hold anything."""
    q, k, v, _ = KINDS[0].tensors()
    width = sum(window) + 1
    w = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    position = first_query + torch.arange(5)[:, None] - window[0] + torch.arange(width)
    dense = torch.full((2, 5, 5), NAN, dtype=torch.float64)
    for t in range(5):
        for j in range(width):
            if 0 <= position[t, j] < 5:
                dense[:, t, position[t, j]] = w[:, t, j]
            else:
                w[:, t, j] = NAN
    op = torch.ops.aft.local.default
    for outside in ("zero_bias", "excluded"):
        options = {"outside": outside, "first_query": first_query, "return_lse": True, "return_average": True}
        want = aft.torch.local(q, k, v, aft.Banded(w), aft.Window(*window), **options)
        for kind, x in (("banded", w), ("dense", dense)):
            mine = decompositions.TABLE[op](q, k, v, kind, x, None, None, *window, None, None, None, None, None, False,
                                            "sigmoid", outside, "automatic", first_query, 0, True, True)
            for one, other in zip(mine, want):
                torch.testing.assert_close(one, other, rtol=0, atol=BOUND)


def test_without_batch_and_without_queries():
    q, k, v, w = KINDS[0].tensors()
    table = decompositions.TABLE
    torch.testing.assert_close(table[torch.ops.aft.full.default](q[0], k[0], v[0], "dense", w)[0],
                               aft.torch.full(q[0], k[0], v[0], w), rtol=0, atol=BOUND)
    rest = (None, None, None, None, None, False, "none")
    torch.testing.assert_close(table[torch.ops.aft.full.default](None, k, v, "dense", w[:2], None, None, *rest)[0],
                               aft.torch.full(None, k, v, w[:2], gate="none"), rtol=0, atol=BOUND)
    torch.testing.assert_close(table[torch.ops.aft.simple.default](None, k, v, *rest)[0],
                               aft.torch.simple(None, k, v, gate="none"), rtol=0, atol=BOUND)


def test_arguments_that_do_not_fit():
    q, k, v, w = KINDS[0].tensors()
    full, local = (decompositions.TABLE[op.default] for op in (torch.ops.aft.full, torch.ops.aft.local))
    conv, simple = (decompositions.TABLE[op.default] for op in (torch.ops.aft.conv, torch.ops.aft.simple))
    window = (WINDOW.before, WINDOW.after)
    for call, name in (
            (lambda: full(q, k, v, "dense", w[:, :1]), "'w'"),
            (lambda: full(q, k, v, "dense", w[:1]), "'w'"),
            (lambda: full(q, k, v, "factorized", None, w, w[:1]), "'v'"),
            (lambda: full(q, k, v, "factorized", None, w[:1], w), "'u'"),
            (lambda: local(q, k, v, "banded", w[:, :2], None, None, *window), "'w'"),
            (lambda: full(q, k, v, "dense", w.expand(3, 5, 5)), "'bias'"),
            (lambda: full(q, k, v, "dense", w.expand(3, 1, 5, 5)), "'w'"),
            (lambda: simple(q, k[..., :3], v), "'k'"),
            (lambda: simple(q, k[:1], v), "'k'"),
            (lambda: simple(q[:1], k, v), "'q'"),
            (lambda: simple(q[..., :1], k, v), "'q'"),
            (lambda: simple(None, k, v), "'gate'"),
            (lambda: simple(q, k, v, w[:4, :] > 0), "'mask'"),
            (lambda: simple(q, k, v, None, torch.tensor([3])), "'key_lengths'"),
            (lambda: conv(*(x[:, None] for x in (q, k, v)), w[:1, None], *[None] * 5, True), "'causal'"),
            (lambda: conv(q, k, v, w.reshape(1, 5, 5)), "'filter'"),
            (lambda: simple(q[0], k[0], v[0], None, None, None, torch.tensor([0, 2, B + 3])), "'query_offsets'"),
    ):
        with pytest.raises(ValueError, match=name):
            call()
