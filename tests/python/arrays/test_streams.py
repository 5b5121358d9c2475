# SPDX-License-Identifier: Apache-2.0
"""Streams: a sequence cut into calls has the bits of the sequence in one, and the values of its definition."""

import copy

import numpy as np
import pytest

import aft
from agreement import DTYPES, Judge
from draws import CHANNELS, HEADS, KEY_CHANNELS, WINDOW, Draw, case
from exporters import Versioned

STREAMED = ("full", "full factorized", "local", "local banded", "simple", "conv")
LENGTH = 12


def stream_for(operator, dtype, slots=2, state=None, capacity=LENGTH):
    shape = (CHANNELS, KEY_CHANNELS)
    given = {"dtype": dtype, "slots": slots, "state": state}
    kind = operator.split()[0]
    if kind == "full":
        return aft.Stream.full(*shape, capacity, **given)
    if kind == "local":
        return aft.Stream.local(*shape, aft.Window(*WINDOW), **given)
    return aft.Stream.conv(*shape, 4, **given) if kind == "conv" else aft.Stream.simple(*shape, **given)


def run(made, stream, cuts, first=0, **keywords):
    """The rows of a problem in several calls."""
    p, parts = made.problem, []
    for a, b in zip((0, *cuts), cuts):
        part = copy.copy(made)
        part.problem = copy.copy(p)
        part.problem.q, part.problem.k, part.problem.v = (x[:, first + a:first + b] for x in (p.q, p.k, p.v))
        parts.append(part.forward(causal=True, stream=stream, **keywords))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operator", STREAMED)
def test_cuts_make_no_difference(operator, dtype):
    made = case(operator, dtype, tq=LENGTH, tk=LENGTH, causal=True)
    whole = run(made, stream_for(operator, dtype), (LENGTH,), arithmetic="full")
    Judge(made.problem).accept("y", whole)
    for cuts in (range(1, LENGTH + 1), (5, LENGTH), (1, 2, 9, LENGTH)):
        stream = stream_for(operator, dtype)
        assert run(made, stream, cuts, arithmetic="full").tobytes() == whole.tobytes()
        assert [stream.position(slot) for slot in (0, 1)] == [LENGTH, LENGTH]


@pytest.mark.parametrize("operator", STREAMED)
def test_lse_and_average_of_a_stream(operator):
    made = case(operator, np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    judge = Judge(made.problem)
    y, lse, average = made.forward(stream=stream_for(operator, np.float32), return_lse=True, return_average=True)
    for name, got in (("y", y), ("lse", lse), ("average", average)):
        judge.accept(name, got)


def test_slots():
    """Batch elements continue the slots that they name, and -1 continues none."""
    made = case("simple", np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    whole = run(made, stream_for("simple", np.float32), (LENGTH,))
    stream = stream_for("simple", np.float32, slots=4)
    assert run(made, stream, (3, 7, LENGTH), slot_ids=[3, 1]).tobytes() == whole.tobytes()
    assert [stream.position(slot) for slot in range(4)] == [0, LENGTH, 0, LENGTH]
    run(made, stream, (2,), slot_ids=np.array([-1, 0], np.int32))
    assert [stream.position(slot) for slot in range(4)] == [2, LENGTH, 0, LENGTH]


@pytest.mark.parametrize("numbers", [list, tuple, np.array, lambda x: np.array(x, np.int32),
                                     lambda x: Versioned(np.array(x))])
def test_forks(numbers):
    made = case("local", np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    stream = stream_for("local", np.float32, slots=4)
    run(made, stream, (7,), slot_ids=numbers([0, 1]))
    assert stream.copy(numbers([1, 0]), numbers([2, 3])) is None
    assert [stream.position(slot) for slot in range(4)] == [7] * 4
    ends = [run(made, stream, (LENGTH - 7,), first=7, slot_ids=ids) for ids in ([0, 1], [3, 2])]
    assert ends[0].tobytes() == ends[1].tobytes()


def test_reset():
    made = case("conv", np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    stream = stream_for("conv", np.float32)
    first = run(made, stream, (LENGTH,))
    stream.reset(1)
    assert [stream.position(slot) for slot in (0, 1)] == [LENGTH, 0]
    stream.reset()
    assert stream.position() == 0 and run(made, stream, (LENGTH,)).tobytes() == first.tobytes()


@pytest.mark.parametrize("operator", STREAMED)
def test_a_saved_slot_goes_on(operator):
    made = case(operator, np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    whole = run(made, stream_for(operator, np.float32), (LENGTH,))
    stream = stream_for(operator, np.float32)
    run(made, stream, (7,))
    saved = stream.state.tobytes()
    assert stream.state is stream.state and stream.state.dtype == np.uint8 and stream.state.flags.writeable
    other = stream_for(operator, np.float32)
    other.state[:] = np.frombuffer(saved, np.uint8).reshape(other.state.shape)
    assert run(made, other, (LENGTH - 7,), first=7).tobytes() == whole[:, 7:].tobytes()


def aligned(shape):
    memory = np.zeros(shape[0] * shape[1] + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + shape[0] * shape[1]].reshape(shape)


def test_a_state_is_adopted():
    made = case("simple", np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    fresh = stream_for("simple", np.float32, slots=3)
    state = aligned(fresh.state.shape)
    state[:] = fresh.state
    for given in (state, Versioned(state)):
        stream = stream_for("simple", np.float32, slots=1, state=given)
        assert stream.state is given and stream.slots == 3
    run(made, stream, (5,))
    assert state.any() and stream.position(1) == 5
    # It goes on where the memory stands, and a new one is made ready by reset.
    assert stream_for("simple", np.float32, slots=3, state=state).position(1) == 5
    stream.reset()
    assert stream.position(1) == 0


def test_a_state_without_slots_in_it_is_refused_when_it_is_used():
    state = aligned(stream_for("simple", np.float32).state.shape)
    stream = stream_for("simple", np.float32, state=state)
    with pytest.raises(ValueError, match="slot 0"):
        stream.position(0)
    stream.reset()
    assert stream.position(0) == 0


def test_what_a_stream_is_of():
    stream = aft.Stream.local(8, 4, (3, 0), dtype=np.dtype(np.float16), slots=5)
    assert (stream.operator, stream.d, stream.hk, stream.window, stream.slots) == ("local", 8, 4, aft.Window(3, 0), 5)
    assert repr(stream) == ("<aft.Stream.local of d=8, hk=4, window=Window(before=3, after=0), dtype=dtype('float16'), "
                            "slots=5>")
    assert stream.dtype == np.float16 and stream.taps is None and stream.capacity is None
    assert aft.Stream.full(8, 4, 6, dtype="float64").capacity == 6
    assert aft.Stream.conv(8, 4, 3, dtype="float32").taps == 3


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype(np.float32), Draw(np.float32)(1).dtype])
def test_names_of_types(dtype):
    x = Draw(np.float32, "types")(1, 3, 8)
    assert aft.simple(x, x, x, causal=True, stream=aft.Stream.simple(8, 8, dtype=dtype)).shape == x.shape


def state_like(change):
    shape = aft.Stream.simple(8, 8, dtype="float32", slots=2).state.shape
    return change(aligned(shape))


def read_only(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("change, error, text", [
    (lambda x: x[:, :-64], ValueError, "argument 'state': expected extent 1 (bytes)"),
    (lambda x: x.view(np.float32), ValueError, "argument 'state': expected elements of uint8, got float"),
    (lambda x: x[:, ::-1], ValueError, "argument 'state'"),
    (lambda x: x[0], ValueError, "argument 'state': expected rank 2, got 1"),
    (read_only, ValueError, "argument 'state': expected memory that may be written"),
    (lambda x: x.tolist(), TypeError, "argument 'state': expected an array"),
])
def test_states_that_do_not_fit(change, error, text):
    with pytest.raises(error) as raised:
        aft.Stream.simple(8, 8, dtype="float32", state=state_like(change))
    assert text in str(raised.value)


def test_errors_of_streams():
    x = Draw(np.float32, "errors")(1, 3, 8)
    stream = aft.Stream.simple(8, 8, dtype="float32")
    before = stream.state.tobytes()
    for call, error, text in (
            (lambda: aft.simple(x, x, x, stream=stream), ValueError, "causal"),
            (lambda: aft.full(x, x, x, x[0], causal=True, stream=stream), ValueError, "stream"),
            (lambda: aft.simple(x, x, x, causal=True, stream=stream, slot_ids=[1]), ValueError, "slot_ids"),
            (lambda: aft.simple(x, x, x, causal=True, stream=stream, slot_ids=[0.5]), TypeError, "slot_ids"),
            (lambda: aft.simple(*[x.astype(np.float64)] * 3, causal=True, stream=stream), ValueError, "stream"),
            (lambda: aft.Stream.simple(8, 3, dtype="float32"), ValueError, "hk"),
            (lambda: aft.Stream.simple(8, 8, dtype="int8"), ValueError,
             "'float32', 'float64', 'float16' or 'bfloat16', got 'int8'"),
            (lambda: aft.Stream.simple("8", 8, dtype="float32"), TypeError, "'d': expected a whole number, got '8'"),
            (lambda: aft.Stream.conv(8, 8, 0.5, dtype="float32"), TypeError, "'taps': expected a whole number"),
            (lambda: aft.Stream.conv(8, 8, None, dtype="float32"), TypeError, "'taps': expected a whole number"),
            (lambda: aft.Stream.full(8, 8, 0.0, dtype="float32"), TypeError, "'capacity': expected a whole number"),
            (lambda: aft.Stream.local(8, 8, 3, dtype="float32"), TypeError, "'window': expected an aft.Window, got 3"),
            (lambda: stream.reset("0"), TypeError, "'slot': expected a whole number"),
            (lambda: aft.Stream.simple(8, 8, dtype="float32", slots=-1), ValueError, "slots"),
            (lambda: aft.Stream.simple(8, 8, dtype="float32", slots=3, state=stream.state), ValueError, "slots"),
            (lambda: stream.reset(-1), ValueError, "slot"),
            (lambda: stream.reset(1), ValueError, "slot"),
            (lambda: stream.position(1), ValueError, "slot"),
            (lambda: stream.copy([0], [1]), ValueError, "'to'"),
            (lambda: stream.copy(0, 1), TypeError, "'from'"),
            (lambda: aft.simple(x, x, x, causal=True, stream=3), TypeError, "an aft.Stream"),
            (aft.Stream, TypeError, "Stream.simple")):
        with pytest.raises(error) as raised:
            call()
        assert text in str(raised.value)
    assert stream.state.tobytes() == before


def test_positions_beyond_the_capacity():
    made = case("full", np.float32, tq=LENGTH, tk=LENGTH, causal=True)
    stream = stream_for("full", np.float32, capacity=10)
    run(made, stream, (8,))
    with pytest.raises(ValueError, match="capacity"):
        run(made, stream, (4,), first=8)
    assert stream.position() == 8
