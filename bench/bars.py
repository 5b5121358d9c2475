#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bars: what each operator has to reach of the machine's ceiling, and how far ahead of its peers it has to be.

A ratio is formed within every round of a race, where its two sides ran one after the other, and the median over the
rounds is held against the bar.   bars.py <result.json> prints the table.
"""

import dataclasses
import sys

from results import Result, quartiles

LONG = "B8_T1024_d512"
SHORT = "B32_T197_d384"
SHAPES = (LONG, SHORT, "B2_T3072_d256", "B1_T4096_d512")
AT_LEAST_1024 = (LONG, "B2_T3072_d256", "B1_T4096_d512")
MEMORY = "B32_T1024_d512"
CACHE = "B2_T1024_d512"
CONV = "14x14_k11_B256_d384_H"


# Ratios of one round: `t` holds seconds by contestant, `facts` flops and bytes.
def speed(ceiling, contestant="aft"):
    """How fast against something that does the same work."""
    return lambda t, facts: t[ceiling] / t[contestant]


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
    yield from over([SHORT], "full", "full, causal", "sgemm's time", share("sgemm", "aft_causal"), 0.75, 0.62, lower=True)
    yield from over(SHAPES, "full", "full, factorized, rank 64", "full's time", share("aft", "aft_factorized"), 1.35, 1.10,
                    lower=True)
    yield from over(SHAPES, "full", "full, bfloat16", "bf16 matmul", speed("matmul"), 0.80, 1.00, kind="bfloat16")
    yield from over(AT_LEAST_1024, "full_backward", "full backward, one thread", "its two sgemms", speed("sgemm"), 0.75,
                    0.90, kind="float/one_thread")
    yield from over([MEMORY], "simple", "simple, 268 MB", "stream", bandwidth(), 0.75, 0.95)
    yield from over([MEMORY], "simple", "simple causal, 268 MB", "stream", bandwidth("aft_causal"), 0.75, 0.95)
    yield from over([CACHE], "simple", "simple, 17 MB", "stream", bandwidth(), 0.50, 0.75)
    yield from over([CACHE], "simple", "simple causal, 17 MB", "stream", bandwidth("aft_causal"), 0.50, 0.75)
    yield from over([MEMORY], "simple_backward", "simple backward, 470 MB", "stream of 7 arrays", bandwidth(), 0.70, 0.95)
    yield from over(SHAPES, "local32", "local s=32", "roof", roof(), 0.45, 0.65)
    yield from over(AT_LEAST_1024, "local256", "local s=256 causal", "roof", roof("aft_causal"), 0.60, 0.80)
    yield from over(SHAPES, "local32_backward", "local s=32 backward", "roof", roof(), 0.30, 0.50)
    yield from over([CONV + "384"], "conv", "conv depthwise", "sgemm's rate", rate("sgemm"), 0.45, 0.68)
    yield from over([CONV + "16"], "conv", "conv 16 heads", "sgemm's rate", rate("sgemm"), 0.35, 0.60)
    yield from over([CONV + "384"], "conv_backward", "conv backward depthwise", "sgemm's rate", rate("sgemm"), 0.30, 0.55)
    yield from over([CONV + "16"], "conv_backward", "conv backward 16 heads", "sgemm's rate", rate("sgemm"), 0.25, 0.45)


def peers():
    for peer in ("sdpa", "eager"):
        yield from over(AT_LEAST_1024, "full", "full, times faster", peer, speed(peer), 2.2)
    yield from over(AT_LEAST_1024, "full", "full bfloat16, times faster", "sdpa", speed("sdpa"), 4.5, kind="bfloat16")
    for peer in ("sdpa", "eager"):
        yield from over(SHAPES, "local32", "local s=32, times faster", peer, speed(peer), 25)
    yield from over(SHAPES, "simple", "simple, times faster", "eager", speed("eager"), 3)
    yield from over(SHAPES, "simple", "simple, times faster", "sdpa", speed("sdpa"), 60)
    for heads in ("384", "16"):
        yield from over([CONV + heads], "conv", "conv, times faster", "eager", speed("eager"), 12)
        yield from over([CONV + heads], "conv", "conv, times faster", "sdpa", speed("sdpa"), 6)
    yield from over(AT_LEAST_1024, "full_training", "full forward + backward, times faster", "sdpa", speed("sdpa"), 2.5)


@dataclasses.dataclass
class Row:
    bar: Bar
    q1: float
    median: float
    q3: float

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
        yield Row(bar, *quartiles(ratios))


def table(rows):
    """Markdown, aligned enough for a terminal."""
    cells = [("work", "race", "against", "ratio", "quartiles", "first bar", "goal", "reached")]
    for r in rows:
        sign = "<= " if r.bar.lower else ">= "
        goal = "" if r.bar.goal is None else f"{sign}{r.bar.goal:g}"
        cells.append((r.bar.work, r.bar.race, r.bar.against, f"{r.median:.3g}", f"{r.q1:.3g} .. {r.q3:.3g}",
                      f"{sign}{r.bar.first:g}", goal, r.verdict))
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def main():
    result = Result.read(sys.argv[1])
    for title, bars in (("ceilings", ceilings()), ("peers", peers())):
        rows = list(evaluate(result, bars))
        if not rows:
            continue
        print(f"\n{title}\n{table(rows)}")
        print(f"{sum(r.verdict == 'goal' for r in rows)} at the goal, "
              f"{sum(r.verdict == 'first bar' for r in rows)} at the first bar, "
              f"{sum(r.verdict == 'missed' for r in rows)} missed")


if __name__ == "__main__":
    main()
