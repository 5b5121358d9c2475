# SPDX-License-Identifier: Apache-2.0
"""Every option, of every operator that takes it, against the definition."""

import numpy as np
import pytest

import aft
from agreement import Judge
from draws import LENGTH, OPERATORS, Draw, case, flat

SEQUENCES = [operator for operator in OPERATORS if operator not in ("conv 2d", "conv 3d", "conv sparse 2d")]
GATES = ("none", "identity", "sigmoid", "relu", "tanh", "silu")


def check(made, **keywords):
    judge = Judge(made.problem)
    judge.accept("y", made.forward(**keywords))
    for name, got in flat(made.backward(**keywords)).items():
        judge.accept(name, got)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("operator", ["full", "local", "simple", "conv"])
def test_gates(operator, gate):
    check(case(operator, np.float32, gate, gate=gate))


@pytest.mark.parametrize("operator", SEQUENCES)
def test_causal(operator):
    check(case(operator, np.float32, causal=True))


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.startswith(("local", "conv")) and "sparse" not in o])
def test_nothing_counts_outside(operator):
    check(case(operator, np.float32, outside="excluded"))


@pytest.mark.parametrize("operator", SEQUENCES)
def test_queries_elsewhere(operator):
    """The last rows of a sequence, asked for alone."""
    check(case(operator, np.float32, tq=4, causal=True, first_query=LENGTH - 4))


@pytest.mark.parametrize("operator", SEQUENCES)
def test_more_keys_than_queries(operator):
    check(case(operator, np.float32, tq=5, tk=LENGTH))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(2, LENGTH, LENGTH), (1, LENGTH, LENGTH), (2, 1, LENGTH), (LENGTH, LENGTH),
                                   (LENGTH,)])
def test_masks(shape, kind):
    mask = Draw(np.float32, shape).random.random(shape) < 0.6
    for operator in ("full", "simple", "conv"):
        check(case(operator, np.float32, shape, mask=mask.astype(kind)))


def test_mask_of_points_on_a_grid():
    made = case("conv 2d", np.float32)
    points = made.problem.k.shape[1]
    made.problem.mask = Draw(np.float32, "points").random.random((1, 1, points)) < 0.6
    check(made)


@pytest.mark.parametrize("lengths", [[4, LENGTH], (0, 3), np.array([5, 2], np.int32), np.array([5, 2], np.int64),
                                     np.array([9, 5, 9, 2])[1::2], range(3, 5)])
@pytest.mark.parametrize("operator", ["full", "local banded", "simple", "conv"])
def test_lengths(operator, lengths):
    made = case(operator, np.float32, str(lengths), key_lengths=list(lengths), query_lengths=list(lengths)[::-1])
    check(made, key_lengths=lengths, query_lengths=lengths[::-1])


def test_what_is_hidden_may_hold_anything():
    made = case("full", np.float32, key_lengths=[5, 7], query_lengths=[4, 9])
    plain = made.forward()
    for b, (keys, rows) in enumerate(((5, 4), (7, 9))):
        made.problem.k[b, keys:], made.problem.v[b, keys:] = np.nan, np.inf
        made.problem.q[b, rows:] = np.nan
    assert made.forward().tobytes() == plain.tobytes()


def test_arithmetic_is_looked_at():
    made = case("full", np.float16)
    Judge(made.problem).accept("y", made.forward(arithmetic="full"))


@pytest.mark.parametrize("operator", SEQUENCES)
def test_packed_sequences(operator):
    """Sequences one behind the other have the bits of calls of their own, and their gradients add up."""
    lengths = (4, 0, 9, 1)
    whole = case(operator, np.float64, batch=1, tq=sum(lengths), tk=sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    p = whole.problem
    function, backward = getattr(aft, whole.function), getattr(aft, f"{whole.function}_backward")
    rest = whole.operands()

    def run(rows, **options):
        q, k, v, dy = (x[0, rows] for x in (p.q, p.k, p.v, p.dy))
        operands = tuple(cut(x, len(q)) for x in rest)
        results = function(q, k, v, *operands, return_lse=True, return_average=True, **options)
        return [*results, *backward(q, k, v, *operands, dy, **options)]

    def cut(x, rows):
        if isinstance(x, aft.Window) or whole.function == "conv" or packing:
            return x
        if isinstance(x, tuple):
            return type(x)(*(y[..., :rows, :] for y in x))
        return x[..., :rows, :rows]

    packing = True
    got = run(slice(None), query_offsets=list(offsets), key_offsets=offsets.astype(np.int32))
    packing = False
    parts = [run(slice(a, b)) for a, b in zip(offsets, offsets[1:])]
    for i in range(6):
        assert got[i].tobytes() == np.concatenate([part[i] for part in parts]).tobytes()
    if operator == "conv":
        # The sum over sequences of what each has; all terms are the library's own, so only the sum rounds.
        expected = sum(part[6] for part in parts)
        np.testing.assert_allclose(got[6], expected, rtol=0, atol=8 * np.spacing(abs(expected).max()))


def test_offsets_of_keys_alone_are_those_of_queries():
    made = case("simple", np.float64, batch=1)
    p = made.problem
    offsets = [0, 3, LENGTH]
    one = aft.simple(p.q[0], p.k[0], p.v[0], query_offsets=offsets)
    both = aft.simple(p.q[0], p.k[0], p.v[0], query_offsets=offsets, key_offsets=offsets)
    assert one.tobytes() == both.tobytes()


@pytest.mark.parametrize("operator", OPERATORS)
def test_without_queries(operator):
    """A gate that does not read q: it may be left out, and the rows are then those of the bias or of v."""
    made = case(operator, np.float32, gate="none")
    whole, dq = made.forward(), made.backward()[0]
    assert not dq.any()
    made.shaped = lambda x, shaped=made.shaped: None if x is made.problem.q else shaped(x)
    assert made.forward().tobytes() == whole.tobytes()
    gradients = made.backward()
    assert gradients[0].tobytes() == dq.tobytes() and gradients[0].shape == dq.shape


@pytest.mark.parametrize("kind", [aft.Factorized, aft.Banded, None])
def test_rows_of_a_bias_without_queries(kind):
    draw = Draw(np.float32, "rows")
    k, v = draw(2, 7, 4), draw(2, 7, 4)
    if kind is aft.Factorized:
        y = aft.full(None, k, v, aft.Factorized(draw(5, 2), draw(7, 2)), gate="none")
    elif kind is aft.Banded:
        y = aft.local(None, k, v, aft.Banded(draw(2, 5, 3)), (1, 1), gate="none")
    else:
        y = aft.full(None, k, v, draw(5, 7), gate="none")
    assert y.shape == (2, 5, 4)


def test_rows_of_packed_queries_that_are_left_out():
    draw = Draw(np.float32, "packed rows")
    k, v = draw(7, 4), draw(7, 4)
    y = aft.simple(None, k, v, gate="none", query_offsets=np.array([0, 2, 3], np.int32), key_offsets=[0, 4, 7])
    assert y.shape == (3, 4) and y[0].tobytes() == y[1].tobytes() != y[2].tobytes()
