# SPDX-License-Identifier: Apache-2.0
"""The words of docs/benchmarks.md. Every figure in them is taken from the result; what it does not hold is not said."""

import bars
from results import quartiles

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
`simple`, cumulative sums when causal; grouped convolutions of exp(w) - 1 for `conv`, in the faster of two memory orders. Their
results agree with ours to rounding, and the run records by how much.
"""


def how_to_read():
    return """
Contestants of a race do the same work on the same data with the same number of threads. In every round each runs once, one
directly after the other, starting with another one each time: what drifts hits all. A ratio is formed within a round; shown
are its median and quartiles over the rounds. Compare ratios, not milliseconds of different runs. Standard normal inputs.
"""


def times_faster(result, race, contestant, ours="aft"):
    r = result.races.get(race)
    if r is None or contestant not in r or ours not in r:
        return None
    return quartiles([t[contestant] / t[ours] for t in r.rounds()])[1]


def span(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    return f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"


def faster(result, operator, contestant, ours="aft", kind="float", shapes=bars.SHAPES):
    return span([times_faster(result, f"{operator}/{s}/{kind}", contestant, ours) for s in shapes])


def text(result):
    points = list(statements(result))
    return "\n".join(f"- {p}" for p in points)


def statements(result):
    full, causal = faster(result, "full", "sdpa"), faster(result, "full", "sdpa_causal", "aft_causal")
    if full:
        yield (f"**A learned bias for every pair** (`full`) takes a time that grows with T² like attention's, {full} times "
               f"faster than PyTorch's attention on the four shapes (causal: {causal} times), and "
               f"{faster(result, 'full', 'eager')} times faster than the same operator in tensor operations.")
    local, simple = faster(result, "local32", "sdpa"), faster(result, "simple", "sdpa")
    if local and simple:
        yield (f"**Windows and plain sums** are where time is won: `local` with 63 keys is {local} times faster than "
               f"attention, `simple` {simple} times, and both grow with T, not T².")
    conv = span([times_faster(result, f"conv/{bars.CONV}{h}/float", "sdpa") for h in ("384", "16")])
    if conv:
        yield f"**On images** of 14 x 14 positions `conv` with 11 x 11 filters is {conv} times faster than attention."
    training = faster(result, "full_training", "sdpa")
    if training:
        local_training = faster(result, "local32_training", "sdpa")
        yield (f"**Training**: forward and backward of `full` are {training} times faster than attention's, of `local` "
               f"{local_training} times.")
    yield from half_precision(result)
    yield from long_sequences(result)
    yield ("**Attention is the better choice** where pairs have to be chosen by what the positions hold: AFT adds a key's weight "
           "and a position's bias and cannot express that, and no speed replaces it. It is also the better choice where "
           "sequences are much longer than any trained on, since a dense or factorized bias exists only for positions that it "
           "was trained for (`local`, `conv` and `simple` have no such limit), and where a T x T bias is too large to keep: "
           "`full` reads T² numbers that attention does not have.")
    memory = dict_of_memory(result.document)
    if "aft_full" in memory and "sdpa" in memory:
        yield (f"**Memory**: at T = 4096 a call of `full` takes {memory['aft_full'] / 1e6:.3g} MB beyond inputs and output, "
               f"`local` {memory['aft_local32'] / 1e6:.2g} MB, `simple` {memory['aft_simple'] / 1e6:.2g} MB, attention "
               f"{memory['sdpa'] / 1e6:.2g} MB, AFT in tensor operations {memory['eager_full'] / 1e6:.3g} MB. None of ours "
               "holds a T x T array; attention's needs are smaller than those of `full`.")


def half_precision(result):
    against_attention = faster(result, "full", "sdpa", kind="bfloat16")
    against_eager = span([times_faster(result, f"full/{s}/bfloat16", "eager") for s in bars.SHAPES])
    if against_attention is None:
        return
    sentence = (f"**bfloat16**: `full` is {against_attention} times faster than attention in bfloat16, and "
                f"{against_eager} times faster than its own form in tensor operations")
    slowest = min(v for v in (times_faster(result, f"full/{s}/bfloat16", "eager") for s in bars.SHAPES) if v is not None)
    if slowest < 1:
        sentence += (", so not on every shape: those tensor operations are two bfloat16 products of oneDNN, at the price of "
                     "T x T temporaries and of weights that underflow where k and w disagree")
    yield sentence + "."


def long_sequences(result):
    races = {int(n.split("/T")[1].split("_")[0]): r for n, r in result.races.items() if n.startswith("growth/T")}
    longest = max((T for T, r in races.items() if "sdpa" in r), default=None)
    if longest is None:
        return
    race = races[longest]
    facts = [f"`{name}` {race.median('sdpa') / race.median(key):.2g} times" for key, name in
             (("aft_factorized", "full"), ("aft_local32", "local"), ("aft_simple", "simple")) if key in race]
    yield (f"**At {longest} positions** of 512 channels attention takes {race.median('sdpa'):.3g} s; faster than it are "
           f"{', '.join(facts)} (`full` with a bias of rank 64).")


def dict_of_memory(document):
    return {m["call"]: m["bytes"] for m in document.get("memory", []) if m["T"] == 4096}
