#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bars: what each operator has to reach of the machine's ceiling, and how far ahead of its peers it has to be.

A ratio is formed within every round of a race, where its two sides ran one after the other, and the median over the
rounds is held against the bar.   bars.py <result.json> prints the table.
"""

import dataclasses
import sys

from results import Result, plain, quartiles

LONG = "B8_T1024_d512"
SHORT = "B32_T197_d384"
SHAPES = (LONG, SHORT, "B2_T3072_d256", "B1_T4096_d512")
AT_LEAST_1024 = (LONG, "B2_T3072_d256", "B1_T4096_d512")
MEMORY = "B32_T1024_d512"
CACHE = "B2_T1024_d512"
CONV = "14x14_k11_B256_d384_H"
SPARSE = "14x14_m1_B256_d384_H"
SPARSE_HEADS = (("1", "one head"), ("32", "32 heads"), ("384", "a head for each channel"))


# Ratios of one round: `t` holds seconds by contestant, `facts` flops and bytes.
def speed(*ceilings, contestant="aft"):
    """How fast against something that does the same work; of several, the fastest."""
    return lambda t, facts: min(t[c] for c in ceilings) / t[contestant]


def share(ceiling, contestant="aft"):
    """How long against something, for what is expected to take a part of its time."""
    return lambda t, facts: t[contestant] / t[ceiling]


def rate(ceiling, contestant="aft"):
    """Flops per second against those of a matrix product."""
    return lambda t, facts: (facts["flops." + contestant] / t[contestant]) / (facts["flops." + ceiling] / t[ceiling])


def stream_seconds(t, facts, contestant):
    """The faster kind of stores moving the contestant's bytes."""
    return min(t[s] / facts["bytes." + s] for s in ("stream", "stream_cached")) * facts["bytes." + contestant]


def bandwidth(contestant="aft", like="aft"):
    return lambda t, facts: stream_seconds(t, facts, like) / t[contestant]


def roof(contestant="aft", product="sgemm"):
    """The slower of computing at a matrix product's rate and moving bytes at a stream's."""
    def ratio(t, facts):
        compute = facts["flops." + contestant] * t[product] / facts["flops." + product]
        return max(compute, stream_seconds(t, facts, contestant)) / t[contestant]
    return ratio


@dataclasses.dataclass
class Bar:
    work: str
    against: str
    race: str
    ratio: object
    first: float
    goal: float = None  # none: a bar without a goal past it
    lower: bool = False  # the ratio is to stay below

    def met(self, value, bar):
        return bar is not None and (value <= bar if self.lower else value >= bar)


def over(shapes, *rest, kind="float", **named):
    operator, work, against, ratio = rest[:4]
    return [Bar(work, against, f"{operator}/{s}/{kind}", ratio, *rest[4:], **named) for s in shapes]


def ceilings():
    others = tuple(s for s in SHAPES if s != LONG)
    yield from over([LONG], "full", "full, dense", "sgemm", speed("sgemm"), 0.90, 0.98)
    yield from over(others, "full", "full, dense", "sgemm", speed("sgemm"), 0.85, 0.95)
    yield from over(AT_LEAST_1024, "full", "full, causal", "sgemm's time", share("sgemm", "aft_causal"), 0.62, 0.54,
                    lower=True)
    yield from over([SHORT], "full", "full, causal", "sgemm's time", share("sgemm", "aft_causal"), 0.75, 0.62,
                    lower=True)
    yield from over(SHAPES, "full", "full, factorized, rank 64", "full's time", share("aft", "aft_factorized"), 1.35,
                    1.10, lower=True)
    yield from over(SHAPES, "full", "full, bfloat16", "bf16 matmul", speed("matmul"), 0.80, 1.00, kind="bfloat16")
    yield from over(SHAPES, "full", "full, bfloat16, float lse and average", "bf16 matmul", speed("matmul", contestant="aft_saved"),
                    0.80, 0.95, kind="bfloat16")
    yield from over(AT_LEAST_1024, "full_backward", "full backward, one thread", "its two sgemms", speed("sgemm"), 0.75,
                    0.90, kind="float/one_thread")
    yield from over(AT_LEAST_1024, "full_backward", "full backward, two threads", "its two sgemms", speed("sgemm"), 0.82,
                    0.90)
    yield from over([SHORT], "full_backward", "full backward, two threads", "its two sgemms", speed("sgemm"), 0.70, 0.82)
    yield from over(SHAPES, "full_backward", "full backward, bfloat16", "its two bf16 matmuls", speed("matmul"), 0.65,
                    0.85, kind="bfloat16")
    yield from over([MEMORY], "simple", "simple, 268 MB", "stream", bandwidth(), 0.75, 0.95)
    yield from over([MEMORY], "simple", "simple causal, 268 MB", "stream", bandwidth("aft_causal"), 0.75, 0.95)
    yield from over([CACHE], "simple", "simple, 17 MB", "stream", bandwidth(), 0.50, 0.75)
    yield from over([CACHE], "simple", "simple causal, 17 MB", "stream", bandwidth("aft_causal"), 0.50, 0.75)
    yield from over([MEMORY], "simple_backward", "simple backward, 470 MB", "stream of 7 arrays", bandwidth(), 0.70,
                    0.95)
    yield from over(["B1_T4096_d512"], "simple", "simple causal, one sequence", "the plain call's time",
                    share("aft", "aft_causal"), 1.2, 1.05, lower=True)
    yield from over(SHAPES, "local32", "local s=32", "roof", roof(), 0.55, 0.70)
    yield from over(AT_LEAST_1024, "local256", "local s=256 causal", "roof", roof("aft_causal"), 0.60, 0.80)
    yield from over(SHAPES, "local32_backward", "local s=32 backward", "roof", roof(), 0.30, 0.50)
    yield from over([CONV + "384"], "conv", "conv depthwise", "sgemm's rate", rate("sgemm"), 0.62, 0.70)
    yield from over([CONV + "16"], "conv", "conv 16 heads", "sgemm's rate", rate("sgemm"), 0.50, 0.60)
    yield from over([CONV + "384"], "conv_backward", "conv backward depthwise", "sgemm's rate", rate("sgemm"), 0.30,
                    0.55)
    yield from over([CONV + "16"], "conv_backward", "conv backward 16 heads", "sgemm's rate", rate("sgemm"), 0.25, 0.45)
    for heads, name in SPARSE_HEADS:
        yield from over([SPARSE + heads], "conv_sparse", f"conv, one tap a head, {name}", "simple's time", share("simple"), 1.5,
                        lower=True)


def peers():
    for peer in ("sdpa", "eager"):
        yield from over(AT_LEAST_1024, "full", "full", peer, speed(peer), 2.2)
    yield from over(AT_LEAST_1024, "full", "full bfloat16", "sdpa", speed("sdpa"), 4.5, kind="bfloat16")
    for peer in ("sdpa", "eager"):
        yield from over(SHAPES, "local32", "local s=32", peer, speed(peer), 25)
    yield from over(SHAPES, "simple", "simple", "eager", speed("eager"), 3)
    yield from over(SHAPES, "simple", "simple", "sdpa", speed("sdpa"), 60)
    for heads in ("384", "16"):
        yield from over([CONV + heads], "conv", f"conv, {heads} heads", "eager", speed("eager", "eager_nchw"), 12)
        yield from over([CONV + heads], "conv", f"conv, {heads} heads", "sdpa", speed("sdpa"), 6)
    yield from over(AT_LEAST_1024, "full_training", "full forward + backward", "sdpa", speed("sdpa"), 2.5)
    for peer, first, goal in (("eager", 1.5, 2), ("sdpa", 3, 4)):
        yield from over(SHAPES, "full_training", "full bfloat16 forward + backward", peer, speed(peer), first, goal,
                        kind="bfloat16")
    for heads in ("384", "16"):
        yield from over([CONV + heads], "conv_training", f"conv forward + backward, {heads} heads", "eager",
                        speed("eager", "eager_nchw"), 10, 15)
    yield from over(SHAPES, "local32_training", "local bfloat16 forward + backward", "eager", speed("eager"), 8, 14,
                    kind="bfloat16")


def microseconds(seconds):
    return lambda t, facts: 1e6 * seconds(t)


def calls():
    """What a call costs beside its work, in microseconds: all of a call on one position, and of one on a sequence of 64
    what one more sequence in the batch does not cost again."""
    for call in ("full", "local8", "simple", "conv7"):
        race = f"small/{call}/float"
        yield Bar(f"{call}, one position", "us", race, microseconds(lambda t: t["aft_T1"]), 3, lower=True)
        yield Bar(f"{call}, 64 positions", "us", race,
                  microseconds(lambda t: t["aft_B1"] - (t["aft_B9"] - t["aft_B1"]) / 8), 3, lower=True)


def most_lost(t, facts):
    """The longest time with more threads over the shortest with fewer."""
    times = [t[name] for name in sorted(t, key=lambda n: int(n.rpartition("_")[2])) if name.startswith("aft_")]
    return max(times[more] / min(times[:more]) for more in range(1, len(times)))


def threads():
    for call in ("full", "local32", "simple", "full_backward"):
        for shape in ("B1_T64_d64", "B1_T256_d64", LONG, "B1_T4096_d512"):
            yield Bar(f"{call}, more threads", "fewer", f"threads_{call}/{shape}/float", most_lost, 1.1, lower=True)


def packed():
    """Sequences of different lengths against a batch of equal ones with as many rows, by the work that each has."""
    for call in ("full", "local32", "simple", "conv7"):
        for direction in ("", "_backward"):
            yield Bar(f"{call}{direction.replace('_', ' ')}, packed", "equal lengths",
                      f"packed_{call}{direction}/{SHORT}/float", rate("equal", contestant="packed"), 0.90, 0.97)


WITHOUT_GROWTH = (("simple", "simple"), ("local32", "local s=32"), ("conv32", "conv 32 taps"))


def inference():
    """One position of each slot, prompts in chunks, biases that are made as they are needed."""
    for call, work in WITHOUT_GROWTH[1:]:
        yield Bar(f"{work}, one position, 64 slots", "stream of what is in reach", f"position_{call}/S64_d512/float",
                  speed("stream"), 0.60, 0.85)
    yield Bar("simple, one position, 4096 slots", "stream of the states", "position_simple/S4096_d512/float",
              speed("stream", "stream_cached"), 0.55, 0.85)
    for slots in (1, 16):
        yield Bar(f"full, position 4096, {slots} slot{'s' * (slots > 1)}", "stream of what is kept",
                  f"position_full/S{slots}_T4096_d512/float", speed("stream"), 0.75, 0.92)
    for call in ("simple", "local8", "conv7"):
        yield Bar(f"{call}, one position of one slot", "us", f"position_{call}/S1_d64/float/one_thread",
                  microseconds(lambda t: t["aft"]), 2, 1, lower=True)
    for call in ("simple", "local32", "conv32", "full"):
        yield Bar(f"{call}, 4096 positions in chunks of 512", "the uncut call",
                  f"prefill_{call}/B1_T4096_d512/float", speed("aft_uncut", contestant="aft_chunks"), 0.85, 0.95)
    for shape in ("d64_H1", "d512_H8"):
        yield Bar("full, ALiBi as it is needed", "the stored bias's time", f"generated/B1_T4096_{shape}/float",
                  share("aft_dense", "aft_generated"), 1.15, lower=True)


def contexts():
    for sequences in (1, 32):
        for call, work in WITHOUT_GROWTH:
            yield Bar(f"{work}, context 1024, {sequences} sequence{'s' * (sequences > 1)}", "attention with a cache", f"contexts/T1024_B{sequences}_d512/float",
                      speed("sdpa", "eager", contestant=f"aft_{call}"), 3, 10)


@dataclasses.dataclass
class Row:
    bar: Bar
    q1: float
    median: float
    q3: float
    best: float  # of each side's fastest round: what is left when other programs take processors away

    @property
    def verdict(self):
        if self.bar.met(self.median, self.bar.goal):
            return "goal"
        return "first bar" if self.bar.met(self.median, self.bar.first) else "missed"


def evaluate(result, bars):
    """Rows of the bars whose race is part of the result with both sides."""
    for bar in bars:
        race = result.races.get(bar.race)
        if race is None:
            continue
        try:
            ratios = [bar.ratio(t, race.facts) for t in race.rounds()]
        except KeyError:
            continue
        fastest = {name: min(samples) for name, samples in race.seconds.items()}
        yield Row(bar, *quartiles(ratios), bar.ratio(fastest, race.facts))


@dataclasses.dataclass
class Figure:
    """A bar that is not a race's: memory and compile time."""
    work: str
    against: str
    value: float
    first: float
    goal: float = None

    @property
    def verdict(self):
        if self.goal is not None and self.value <= self.goal:
            return "goal"
        return "first bar" if self.value <= self.first else "missed"


def figures(document):
    at = {(m["call"], m["T"]): m["bytes"] for m in document.get("memory", [])}
    for call, eager in (("full", "full"), ("local32", "local"), ("simple", "simple")):
        ours, theirs = at.get((f"aft_{call}", 4096)), at.get((f"eager_{eager}", 4096))
        if ours is not None and theirs:
            yield Figure(f"peak memory of {call}, T 4096", "eager's", ours / theirs, 0.02)
    for row in document.get("compile", {}).get("rows", []):
        if row["call"] != "include only":
            yield Figure(f"compiling a call of {row['call']}", "seconds", row["seconds"], 10, 4)


def figure_table(rows):
    return aligned([("work", "against", "figure", "first bar", "goal", "reached")] + [
        (r.work, r.against, plain(r.value), f"<= {r.first:g}", "" if r.goal is None else f"<= {r.goal:g}", r.verdict)
        for r in rows])


def aligned(cells):
    """A Markdown table that can be read in a terminal."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def tally(rows):
    at = {verdict: sum(r.verdict == verdict for r in rows) for verdict in ("goal", "first bar", "missed")}
    return f"{at['goal']} at the goal, {at['first bar']} at the first bar, {at['missed']} missed"


def table(rows):
    cells = [("work", "race", "against", "ratio", "quartiles", "fastest", "first bar", "goal", "reached")]
    for r in rows:
        sign = "<= " if r.bar.lower else ">= "
        goal = "" if r.bar.goal is None else f"{sign}{r.bar.goal:g}"
        cells.append((r.bar.work, r.bar.race, r.bar.against, plain(r.median), f"{plain(r.q1)} .. {plain(r.q3)}",
                      plain(r.best),
                      f"{sign}{r.bar.first:g}", goal, r.verdict))
    return aligned(cells)


GROUPS = (("ceilings", ceilings), ("peers", peers), ("calls", calls), ("threads", threads), ("packed", packed),
          ("inference", inference), ("contexts", contexts))


def main():
    result = Result.read(sys.argv[1])
    for title, bars in GROUPS:
        rows = list(evaluate(result, bars()))
        if rows:
            print(f"\n{title}\n{table(rows)}\n{tally(rows)}")
    rows = list(figures(result.document))
    if rows:
        print(f"\n{figure_table(rows)}\n{tally(rows)}")


if __name__ == "__main__":
    main()
