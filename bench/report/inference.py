# SPDX-License-Identifier: Apache-2.0
"""The section of docs/benchmarks.md about streams, packed sequences and biases that are made as they are needed."""

import textwrap

import bars
import plots
from results import plain, quartiles

CEILINGS = """\
One position of each slot reads e^k and v of the positions in reach and what left the window, and writes what changed. The
ceilings are streams on as many threads: of `local` and `conv` one that reads e^k and v of the 32 positions in reach and
nothing else, of `full` those of all positions; of `simple` one that reads the five arrays of a state that a position needs,
updates two of them where they lie, reads q, k and v and writes y. Streams find their bytes side by side, a position finds
them in slots. One slot is called with 64 channels on one thread; its row is the whole call in microseconds. Prompts are
taken in calls of 512 positions, against one causal call without a stream, with a bias of its own for every position. ALiBi
is a function against the same numbers stored, causal, with 64 channels and one head and with 512 and eight; less is better.
"""

PACKED = """\
Log-normal lengths with mean 200, packed one behind the other, against 32 of 197: rows, or for `full` pairs, per second.
"""

CONTEXTS = """\
A token of decoding: a call on one position of each sequence, 512 channels, float. Attention has 8 heads of 64 channels and a
cache that was allocated for all positions; the new key and value are written to it, then it is
`scaled_dot_product_attention` or two products with a softmax, and the faster one of a round is what we are compared with.
Operators alone: projections and the rest of a layer cost both the same. `local` has a bias for 32 keys, `conv` filters of 32
taps for each 64 channels, `full` a bias for every key.
"""


def section(result):
    """Lines of the section; `result` may be none."""
    yield "## Inference\n"
    yield "![contexts](benchmarks/contexts.svg)\n"
    if result is None:
        yield "Not measured yet: `scripts/bench --inference` does it.\n"
        return
    yield "\n".join(statements(result)) + "\n"
    yield CEILINGS
    yield from table(result, bars.inference)
    yield from prompts(result)
    yield "### Against attention with a cache\n"
    yield CONTEXTS
    yield from table(result, bars.contexts)
    for sequences in (1, 32):
        yield from contexts(result, sequences)
    yield "### Packed sequences\n"
    yield PACKED
    yield from table(result, bars.packed)


def table(result, bars_of):
    rows = list(bars.evaluate(result, bars_of()))
    yield f"{bars.table(rows)}\n\n{bars.tally(rows)}.\n" if rows else "Not measured.\n"


def prompts(result):
    """What cutting costs, and what a stream costs by itself."""
    races = [(call, result.races.get(f"prefill_{call}/B1_T4096_d512/float")) for call in ("simple", "local32", "conv32", "full")]
    cells = [(call, *[plain(1e3 * race.median(c)) for c in ("aft_uncut", "aft_whole", "aft_chunks")]) for call, race in races
             if race]
    if cells:
        yield "Milliseconds for 4096 positions of 512 channels:\n"
        yield bars.aligned([("", "without a stream", "a stream, uncut", "a stream, calls of 512"), *cells]) + "\n"


def ahead(race, contestant):
    """Attention's time over ours, round by round, as bars.py has it."""
    ratio = bars.speed("sdpa", "eager", contestant=contestant)
    return quartiles([ratio(t, race.facts) for t in race.rounds()])[1]


def compared(race, contestant):
    return contestant.startswith("aft_") and all(c in race for c in (contestant, "sdpa", "eager"))


def contexts(result, sequences):
    races = plots.context_races(result, sequences)
    keys = [(key, label) for key, label, _, _ in plots.CONTEXTS if any(key in race for _, race in races)]
    if not keys:
        return
    of = "one sequence" if sequences == 1 else f"{sequences} sequences"
    yield f"Microseconds a call on {of}, and in brackets how many times as long attention takes:\n"
    cells = [("context", *[label for _, label in keys])]
    for T, race in races:
        row = [str(T)]
        for key, _ in keys:
            times = f" ({plain(ahead(race, key), 2)})" if compared(race, key) else ""
            row.append(plain(1e6 * race.median(key)) + times if key in race else "-")
        cells.append(tuple(row))
    yield bars.aligned(cells) + "\n"
    kept = [(key, label) for key, label in keys if any(f"bytes.{key}" in race.facts for _, race in races)]
    if kept and sequences == 1:
        yield "Bytes that a sequence keeps:\n"
        yield bars.aligned([("context", *[label for _, label in kept])] + [
            (str(T), *[f"{race.facts['bytes.' + key]:.0f}" if f"bytes.{key}" in race.facts else "-" for key, _ in kept])
            for T, race in races]) + "\n"


def statements(result):
    """What to conclude, with every figure from the result; below 1 attention is the faster one."""
    for sequences, words in ((1, "One sequence"), (32, "32 sequences in a call")):
        races = plots.context_races(result, sequences)
        parts = []
        for key, label in (*bars.WITHOUT_GROWTH, ("full", "full")):
            ratios = [(T, ahead(race, f"aft_{key}")) for T, race in races if compared(race, f"aft_{key}")]
            if ratios:
                parts.append(f"{label} {', '.join(f'{plain(x, 2)} at {T}' for T, x in ratios)}")
        if parts:
            text = f"- **{words}**: how many times as long attention takes for a token, by the context: {'; '.join(parts)}."
            yield textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
