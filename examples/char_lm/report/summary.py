#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/demo.md says about a run of the demo.

summary.py RESULTS.json SUMMARY.json       keeps the table of a run, and adds machine and commit
summary.py --writing RESULTS.json SUMMARY.json   keeps how fast a run wrote, and nothing else of it
summary.py --table SUMMARY.json            prints it as Markdown
summary.py --check SUMMARY.json PAGE.md    fails if the page holds another table
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "common" / "report"))
from kept_runs import NAMES, machine_of, origin, read, show_or_check, write  # noqa: E402  (where they are comes first)

KEPT = ("mixer", "parameters", "held_out_bits", "mixer_ms", "step_ms", "peak_bytes", "context", "dim", "layers", "heads",
        "window", "batch", "steps", "learning_rate", "bias_lr_scale", "seed")
# Of runs that wrote something. Speed does not ask what a model has learned: one step of training is enough for these.
WRITING = ("characters", "characters_per_second", "stream_us", "recompute_us", "state_bytes")
SHAPE = ("mixer", "context", "dim", "layers", "heads", "window")


def summary(results, writing=False):
    shared = ("compiler", "products", "threads") + (() if writing else ("text", "order1_bits"))
    kept = SHAPE + WRITING if writing else KEPT + WRITING
    return {
        **origin(),
        **{key: results[key] for key in shared},
        "results": [{key: run[key] for key in kept if key in run} for run in results["results"]],
    }


def name_of(run):
    return NAMES[run["mixer"]] + (" with its cache" if run["mixer"] == "attention" else "")


def state_of(run):
    return f"{run['state_bytes'] / 1e3:,.0f} kB"


def writing_table(document):
    run = document["results"][0]
    yield machine_of(document)
    yield f"Context {run['context']}, {run['layers']} layers of {run['dim']}, {run['characters']:,} characters each:"
    yield ""
    yield ("| mixer | characters a second | ms a character with a full context, by stream | recomputed | times as fast | "
           "state of a sequence |")
    yield "|---|---|---|---|---|---|"
    for run in document["results"]:
        fast, slow = run["stream_us"], run["recompute_us"]
        yield (f"| {name_of(run)} | {run['characters_per_second']:,.0f} | {fast / 1e3:.2f} | {slow / 1e3:.2f} | "
               f"{slow / fast:.0f} | {state_of(run)} |")


def table(document):
    run = document["results"][0]
    if "steps" not in run:
        yield from writing_table(document)
        return
    yield machine_of(document)
    yield f"{run['steps']} steps of {run['batch']} x {run['context']} bytes, {run['layers']} layers of {run['dim']}:"
    yield ""
    yield ("| mixer | parameters | bits per character, held out | ms per step, mixer | whole | peak memory | "
           "characters a second | state of a sequence |")
    yield "|---|---|---|---|---|---|---|---|"
    for run in document["results"]:
        wrote = "not measured | not measured"
        if "state_bytes" in run:
            wrote = f"{run['characters_per_second']:,.0f} | {state_of(run)}"
        yield (f"| {NAMES[run['mixer']]} | {run['parameters']:,} | {run['held_out_bits']:.2f} | {run['mixer_ms']:.0f} | "
               f"{run['step_ms']:.0f} | {run['peak_bytes'] / 1e6:.0f} MB | {wrote} |")


def main():
    arguments = sys.argv[1:]
    done = show_or_check(arguments, table)
    if done is not None:
        return done
    writing = arguments[:1] == ["--writing"]
    if writing:
        arguments = arguments[1:]
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    write(arguments[1], summary(read(arguments[0]), writing))
    return 0


if __name__ == "__main__":
    sys.exit(main())
