# SPDX-License-Identifier: Apache-2.0
"""The words of docs/benchmarks.md. Every figure in them is taken from the result; what it does not hold is not said."""

import textwrap

import bars
from results import plain, quartiles

CEILINGS = """\
The ceiling of `full` is oneDNN's sgemm of the product that it amounts to, T x 2Bd x T, and for bfloat16 oneDNN's matmul;
exponentials, packing, division and gate come on top and are in our time. `simple` moves four arrays and its ceiling is a
stream that reads three and writes one, with the faster of two kinds of stores; its backward pass moves seven. Windows have
the slower of two ceilings: their useful flops at the sgemm's rate, their bytes at the stream's. Useful are four flops for
every pair (t, s) inside window and sequence and every channel, twice as many backward; `conv` counts two for a channel's
numerator and two for a head's denominator, three times as many backward. The part of a causal triangle in the sgemm's time
and the cost of a factorized bias are shares: less is better.
"""

PEERS = """\
Attention is `scaled_dot_product_attention` with heads of 64 channels on the same q, k, v. AFT in PyTorch is what one writes
with tensor operations: two products with exp(w) for `full` and, with w times a mask, for `local`; a softmax over keys for
`simple`, cumulative sums when causal; grouped convolutions of exp(w) - 1 for `conv`, in the faster of two memory orders.
"""


def how_to_read():
    return """
Contestants of a race do the same work on the same data with the same number of threads. In every round each runs once, one
directly after the other, starting with another one each time: what drifts hits all. Threads are bound to a
processor each. Calls below 0.2 s are made for 20 ms, or once, before they are timed: what the one before left in the caches is not theirs. A ratio is formed within a round; shown
are its median and quartiles over the rounds, and beside them the ratio of the fastest times that each side had in any round,
which other programs on the machine disturb least. No round begins after a minute. Bars are held against the median. Compare ratios, not milliseconds of different runs. Standard normal inputs.
"""


def processors(result):
    """Where the two processors were, race by race."""
    races = [race.facts for race in result.races.values() if "handover.most" in race.facts]
    if not races:
        return ""
    low = min(facts["handover.least"] for facts in races)
    text = f"A cache line went from one thread to the other in {plain(low, 2)} ns at best"
    if all(facts["handover.most"] < 3 * low for facts in races):
        return text + ", in no race in more than three times as long.\n"
    apart = sum(facts["handover.least"] > 3 * low for facts in races)
    moved = sum(facts["handover.most"] > 3 * low for facts in races) - apart
    high = max(facts["handover.least"] for facts in races)
    return (f"{text}. In {apart} of {len(races)} races it took up to {plain(high, 2)} ns all the time, and in {moved} for "
            "some rounds: the virtual processors then were, by that, on cores without a common third-level cache. Memory and caches "
            "are twice as fast there, so that ratios to a stream fall, and threads wait longer for what another has "
            "written.\n")


def agreement(result):
    """How far the peers' results are from ours."""
    parts = []
    for kind in ("float", "bfloat16"):
        apart = [race.facts["difference.eager"] for name, race in result.races.items()
                 if name.endswith("/" + kind) and "difference.eager" in race.facts]
        if apart:
            parts.append(f"{max(apart):.1e} in {kind}")
    return ("Its results were compared with ours in the same run: they differ by at most " + " and ".join(parts) +
            ", as a part of the largest output.\n") if parts else ""


def ratio(result, race, contestant, ours="aft"):
    """Our speed over the contestant's."""
    r = result.races.get(race)
    if r is None or contestant not in r or ours not in r:
        return None
    return quartiles([t[contestant] / t[ours] for t in r.rounds()])[1]


def span(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    low, high = plain(min(values), 2), plain(max(values), 2)
    return low if low == high else f"{low} to {high}"


def ratios(result, operator, contestant, ours="aft", kind="float", shapes=bars.SHAPES):
    return [ratio(result, f"{operator}/{s}/{kind}", contestant, ours) for s in shapes]


def text(result):
    return "\n".join(textwrap.fill(f"- {s}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
                     for s in statements(result))


def statements(result):
    """All speeds are ours over theirs: 2 times the speed is half the time."""
    full = span(ratios(result, "full", "sdpa"))
    if full:
        causal = span(ratios(result, "full", "sdpa_causal", "aft_causal"))
        yield (f"**A learned bias for every pair** (`full`): the work grows with T² as attention's does, at {full} times the "
               f"speed of PyTorch's attention on the four shapes (causal: {causal}), and at "
               f"{span(ratios(result, 'full', 'eager'))} times the speed of the same operator in tensor operations.")
    local, simple = span(ratios(result, "local32", "sdpa")), span(ratios(result, "simple", "sdpa"))
    if local and simple:
        yield (f"**Windows and plain sums** are where time is won: `local` with 63 keys has {local} times the speed of "
               f"attention, `simple` {simple} times, and the work of both grows with T, not T².")
    conv = span(ratio(result, f"conv/{bars.CONV}{h}/float", "sdpa") for h in ("384", "16"))
    if conv:
        yield f"**On images** of 14 x 14 positions `conv` with 11 x 11 filters has {conv} times the speed of attention."
    training = span(ratios(result, "full_training", "sdpa"))
    if training:
        yield (f"**Training**: forward and backward of `full` have {training} times the speed of attention's, of `local` "
               f"{span(ratios(result, 'local32_training', 'sdpa'))} times.")
    yield from half_precision(result)
    yield from half_training(result)
    yield from long_sequences(result)
    yield from memory(result.document)
    yield ("**Attention is the better choice** where pairs have to be chosen by what the positions hold: AFT adds a key's weight "
           "and a position's bias, which cannot express that, and no speed makes up for it. Also where sequences are longer "
           "than any that the model was trained on, since `full` and `local` have a bias only for positions that they were trained for "
           "(`conv` and `simple` know no such limit); and where T² numbers are too many to keep: a dense bias is an "
           "input that attention does not have.")
    yield from slower(result)


def half_precision(result):
    attention = span(ratios(result, "full", "sdpa", kind="bfloat16"))
    eager = [r for r in ratios(result, "full", "eager", kind="bfloat16") if r is not None]
    if not attention or not eager:
        return
    sentence = (f"**bfloat16**: `full` has {attention} times the speed of attention in bfloat16, and {span(eager)} times that "
                "of its own form in tensor operations")
    if min(eager) < 1:
        sentence += (". Where that is below 1, two bfloat16 products of oneDNN are faster than our kernel; they pay with T x T "
                     "temporaries, and with weights that underflow where k and w disagree")
    yield sentence + "."
    yield from storage(result)


def storage(result):
    """Times in bfloat16 over those in float, of races that ran one after the other."""
    def times(operator):
        pairs = [(result.races.get(f"{operator}/{s}/bfloat16"), result.races.get(f"{operator}/{s}/float")) for s in bars.SHAPES]
        return span(short.median("aft") / wide.median("aft") for short, wide in pairs if short and wide)
    backward, local, simple = (times(operator) for operator in ("full_backward", "local32", "simple"))
    if backward and local and simple:
        yield (f"**Elsewhere in bfloat16**: the backward pass of `full` takes {backward} times as long as in float, `local` "
               f"{local} times, `simple`, which computes in float, {simple} times.")


def half_training(result):
    """Every operator's training step in bfloat16 against tensor operations, as they are and compiled."""
    parts = []
    for name in ("full", "local32", "simple"):
        against = [span(ratios(result, f"{name}_training", peer, kind="bfloat16")) for peer in ("sdpa", "eager", "compiled")]
        if all(against):
            parts.append(f"`{name.removesuffix('32')}` {against[0]}, {against[1]} and {against[2]}")
    if parts:
        yield ("**Training in bfloat16**, forward and backward: speed against attention, the same operator in tensor operations, "
               f"and those compiled by torch.compile: {'; '.join(parts)}.")



def long_sequences(result):
    races = {int(n.split("/T")[1].split("_")[0]): r for n, r in result.races.items() if n.startswith("growth/T")}
    longest = max((T for T, r in races.items() if "sdpa" in r), default=None)
    if longest is None:
        return
    race = races[longest]
    speeds = [f"`{name}` has {plain(race.median('sdpa') / race.median(key), 2)} times its speed" for key, name in
              (("aft_factorized", "full"), ("aft_local32", "local"), ("aft_simple", "simple")) if key in race]
    yield (f"**At {longest} positions** of 512 channels a call of attention takes {plain(race.median('sdpa'))} s; "
           f"{', '.join(speeds)} (`full` with a bias of rank 64).")


def memory(document):
    at = {m["call"]: m["bytes"] / 1e6 for m in document.get("memory", []) if m["T"] == 4096}
    wanted = ("aft_full", "aft_local32", "aft_simple", "sdpa", "eager_full")
    if not all(w in at for w in wanted):
        return
    full, local, simple, attention, eager = (plain(at[w], 2) for w in wanted)
    yield (f"**Memory**: at T = 4096 a call of `full` takes {full} MB beyond inputs and output, `local` {local} MB, `simple` "
           f"{simple} MB, attention {attention} MB, `full` in tensor operations {eager} MB. No operator holds a T x T array.")


def slower(result):
    """Where the measurements themselves say so."""
    def won_by(peers):
        for name, race in result.races.items():
            for ours in race.seconds:
                if not ours.startswith("aft"):
                    continue
                causal = "_causal" if ours == "aft_causal" else ""
                values = [v for v in (ratio(result, name, peer + causal, ours) for peer in peers) if v is not None]
                if values and min(values) < 1:
                    yield f"`{name}` {ours.removeprefix('aft').strip('_')}".rstrip() + f" ({plain(min(values), 2)})"

    for what, peers in (("attention", ("sdpa",)), ("tensor operations", ("eager", "eager_nchw", "compiled", "compiled_nchw"))):
        races = ", ".join(won_by(peers))
        if races:
            yield f"**Won by {what}**, our speed over theirs in brackets: {races}."
        else:
            yield f"**No race of this run** was won by {what}."
