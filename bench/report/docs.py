#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/benchmarks.md, its plots and the table of docs/developing/performance.md from the results under bench/results.

docs.py            writes them
docs.py --check    says whether they are what the results give, without drawing
"""

import pathlib
import sys

import bars
import conclusions
import inference
import plots
import summary
from results import Result, plain, quartiles

TOP = pathlib.Path(__file__).resolve().parents[2]
RESULTS = TOP / "bench/results"
INFERENCE = RESULTS / "inference/native.json"
PAGE = TOP / "docs/benchmarks.md"
IMAGES = TOP / "docs/benchmarks"
NOTES = TOP / "docs/developing/performance.md"

SHAPES = {"B8_T1024_d512": "B8 T1024 d512", "B32_T197_d384": "B32 T197 d384", "B2_T3072_d256": "B2 T3072 d256",
          "B1_T4096_d512": "B1 T4096 d512"}


def milliseconds(seconds):
    return plain(1e3 * seconds)


def size(count):
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{plain(count / scale)} {unit}"
    return f"{count} B"


def cell(race, contestant):
    return milliseconds(race.median(contestant)) if race and contestant in race else "-"


def machine(document):
    m = document["machine"]
    caches = ", ".join(f"{k} {v // 1024} KiB" for k, v in m["cache_bytes"].items())
    changed = " with changes that are not in it" if document["modified"] else ""
    rows = [("processor", f"{m['cpu']}, family {m['family']} model {m['model']}, {m['cores']} cores; {caches} per instance"),
            ("memory, system", f"{m['memory_gib']} GiB; {m['system']}, kernel {m['kernel']}"),
            ("compiler", f"{document['compiler']}, `{document['flags']}`"),
            ("threads", str(document["threads"])),
            ("oneDNN, PyTorch", f"{document['onednn']}, {document['pytorch']}"),
            ("commit", f"`{document['commit'][:12]}`{changed}"),
            ("date", document["date"][:10]),
            ("load", f"{document['load'][0]} before and {document['load'][1]} after the run, on {m['cores']} cores")]
    return bars.aligned([("", "")] + rows)


def speeds(result, operator, kind, columns):
    """Milliseconds of an operator's contestants, a row per shape."""
    cells = [("ms", *[title for _, title in columns])]
    for shape, text in SHAPES.items():
        race = result.races.get(f"{operator}/{shape}/{kind}")
        if race:
            cells.append((text, *[cell(race, c) for c, _ in columns]))
    return bars.aligned(cells)


CALL = (("aft", "aft"), ("aft_causal", "aft causal"))
PEERS = (("sdpa", "attention"), ("sdpa_causal", "attention causal"), ("eager", "AFT in PyTorch"))
COMPILED = ("compiled", "AFT in PyTorch, compiled")


def sparse_filters(result):
    """One tap a head beside AFT-simple on the same data, where they were raced."""
    races = [(name, result.races.get(f"conv_sparse/{bars.SPARSE}{heads}/float")) for heads, name in bars.SPARSE_HEADS]
    cells = [(name, cell(race, "aft"), cell(race, "simple"), plain(quartiles([t["aft"] / t["simple"] for t in race.rounds()])[1]))
             for name, race in races if race]
    if cells:
        yield "\nOne tap a head, as training leaves of a filter that it makes sparse (`aft::sparse_filter`), with a key for every channel:\n"
        yield bars.aligned([("ms", "aft", "simple", "times simple's"), *cells])


def tables(result):
    yield "### full\n"
    yield speeds(result, "full", "float", (*CALL, ("aft_factorized", "aft rank 64"), ("sgemm", "sgemm"), *PEERS,
                                            ("eager_causal", "AFT causal in PyTorch")))
    yield "\nbfloat16:\n"
    yield speeds(result, "full", "bfloat16", (*CALL, ("aft_saved", "aft with lse, average"), ("aft_factorized", "aft rank 64"), ("matmul", "bf16 matmul"),
                                               *PEERS))
    yield "\nBackward, with log-sum-exp and average of the forward call; float, one thread, then all, then bfloat16:\n"
    for kind, ceiling in (("float/one_thread", "sgemm"), ("float", "sgemm"), ("bfloat16", "matmul")):
        yield speeds(result, "full_backward", kind, (("aft", "aft"), (ceiling, f"two {ceiling}s"))) + "\n"
    yield "Forward and backward together, the gradients of all inputs:\n"
    yield speeds(result, "full_training", "float", (*CALL, *PEERS, COMPILED))
    yield "\nin bfloat16:\n"
    yield speeds(result, "full_training", "bfloat16", (*CALL, *PEERS, COMPILED))
    yield "\n### local, 63 keys around each query\n"
    yield speeds(result, "local32", "float", (*CALL, *PEERS))
    yield "\nbfloat16:\n"
    yield speeds(result, "local32", "bfloat16", (*CALL, *PEERS))
    yield "\nCausal with 256 keys:\n"
    yield speeds(result, "local256", "float", (("aft_causal", "aft causal"), ("sdpa_causal", "attention causal"),
                                               ("eager_causal", "AFT causal in PyTorch")))
    yield "\nForward and backward together:\n"
    yield speeds(result, "local32_training", "float", (("aft", "aft"), *PEERS, COMPILED))
    yield "\nin bfloat16:\n"
    yield speeds(result, "local32_training", "bfloat16", (("aft", "aft"), *PEERS, COMPILED))
    yield "\n### simple\n"
    yield speeds(result, "simple", "float", (*CALL, ("stream", "stream"), ("sdpa", "attention"), ("eager", "AFT in PyTorch"),
                                             ("eager_causal", "AFT causal in PyTorch")))
    yield "\nbfloat16:\n"
    yield speeds(result, "simple", "bfloat16", (*CALL, ("stream", "stream"), ("sdpa", "attention"),
                                                ("eager", "AFT in PyTorch")))
    yield "\nForward and backward together:\n"
    yield speeds(result, "simple_training", "float", (("aft", "aft"), *PEERS, COMPILED))
    yield "\nin bfloat16:\n"
    yield speeds(result, "simple_training", "bfloat16", (("aft", "aft"), *PEERS, COMPILED))
    yield "\n### conv, 256 images of 14 x 14 positions and 384 channels, filters of 11 x 11\n"
    peers = ("attention", "AFT in PyTorch", "channels first")
    cells = [("ms", "aft", *peers, "aft backward", "aft forward + backward", *peers, "compiled", "channels first")]
    for heads, name in (("384", "a filter per channel"), ("16", "16 heads, keys tied to them")):
        for kind in ("float", "bfloat16"):
            race = result.races.get(f"conv/{bars.CONV}{heads}/{kind}")
            back = result.races.get(f"conv_backward/{bars.CONV}{heads}/{kind}")
            if race:
                contestants = ("aft", "sdpa", "eager", "eager_nchw")
                training = result.races.get(f"conv_training/{bars.CONV}{heads}/{kind}")
                cells.append((f"{name}, {kind}", *[cell(race, c) for c in contestants], cell(back, "aft"),
                              *[cell(training, c) for c in (*contestants, "compiled", "compiled_nchw")]))
    yield bars.aligned(cells)
    yield from sparse_filters(result)
    doubles = [(name.rpartition("/")[0], milliseconds(race.median("aft"))) for name, race in result.races.items()
               if name.endswith("/double")]
    if doubles:
        yield "\n### double\n"
        yield bars.aligned([("race", "ms"), *doubles])


def growth(result):
    lines = plots.growth_times(result)
    lengths = sorted({T for line in lines.values() for T, _ in line})
    columns = [(k, label) for k, label, _, _ in plots.GROWTH if k in lines]
    at = {k: dict(line) for k, line in lines.items()}
    yield "Milliseconds:\n"
    yield bars.aligned([("T", *[label for _, label in columns])] + [
        (str(T), *[milliseconds(at[k][T]) if T in at[k] else "-" for k, _ in columns]) for T in lengths])
    memory = {k: dict(line) for k, line in plots.growth_memory(result.document).items()}
    columns = [(k, label) for k, label, _, _ in plots.GROWTH if k in memory]
    yield "\nPeak memory of one call, beyond its inputs and output:\n"
    yield bars.aligned([("T", *[label for _, label in columns])] + [
        (str(T), *[size(memory[k][T]) if T in memory[k] else "-" for k, _ in columns]) for T in lengths])


def rows_of(result, bars_of):
    return list(bars.evaluate(result, bars_of()))


def page(result, decoding, others):
    """`decoding` is the result of the races of inference, or none."""
    document = result.document
    yield "# Benchmarks\n"
    yield "Made by `scripts/bench` from `bench/results/native.json`; figures of other runs are named where they stand.\n"
    yield machine(document)
    yield conclusions.how_to_read() + conclusions.processors(result)
    yield "## What to conclude\n"
    yield conclusions.text(result)
    yield "\n## Against the machine\n"
    yield conclusions.CEILINGS
    rows = rows_of(result, bars.ceilings)
    yield f"![ceilings](benchmarks/ceilings.svg)\n\n{bars.table(rows)}\n\n{bars.tally(rows)}.\n"
    yield "![roofline](benchmarks/roofline.svg)\n"
    yield "## Against PyTorch\n"
    yield conclusions.PEERS + conclusions.agreement(result)
    rows = rows_of(result, bars.peers)
    yield f"![peers](benchmarks/peers.svg)\n\n{bars.table(rows)}\n\n{bars.tally(rows)}.\n"
    yield "## Growth with the length of a sequence\n"
    yield "![growth](benchmarks/growth.svg)\n"
    yield from growth(result)
    yield "\n## Threads\n"
    yield ("![threads](benchmarks/threads.svg)\n\nThe longest time with more threads over the shortest with fewer, all in one "
           "race; below 1.1 no thread does harm.\n")
    rows = rows_of(result, bars.threads)
    yield f"{bars.table(rows)}\n\n{bars.tally(rows)}.\n"
    yield from inference.section(decoding)
    if decoding:
        yield f"`{INFERENCE.relative_to(TOP)}`, a run of its own:\n"
        yield machine(decoding.document)
        yield "\n" + conclusions.processors(decoding)
    yield "## Small calls\n"
    yield ("Microseconds on one thread, 64 channels: a whole call on one position; and of a call on 64 positions what is left "
           "when the cost of one more sequence in the batch is taken away. The latter holds what a batch shares, such as the "
           "exponentials of the bias.\n")
    rows = rows_of(result, bars.calls)
    yield f"{bars.table(rows)}\n\n{bars.tally(rows)}.\n"
    yield "## Memory and compile time\n"
    rows = list(bars.figures(document))
    yield f"{bars.figure_table(rows)}\n\n{bars.tally(rows)}.\n"
    if "compile" in document:
        yield f"A file with one call, `{document['compile']['compiler']} {document['compile']['flags']}`, processor time:\n"
        yield bars.aligned([("call", "seconds", "code, KiB")] + [
            (r["call"], f"{r['seconds']:.2f}", f"{r['code_bytes'] / 1024:.0f}") for r in document["compile"]["rows"]])
    yield "\n## All times\n"
    yield "Medians in milliseconds. Every sample is in the result file.\n"
    yield from tables(result)
    for name, other in others.items():
        held = other.document["onednn_isa"] != "all"
        yield f"\n## {name}\n"
        yield (f"`bench/results/{name}.json`: the same program "
               f"{'for this instruction set, oneDNN held to it as well' if held else 'on another machine'}.\n")
        yield machine(other.document)
        for _, bars_of in bars.GROUPS:
            rows = rows_of(other, bars_of)
            if rows:
                yield f"\n{bars.table(rows)}\n\n{bars.tally(rows)}.\n"
        rows = list(bars.figures(other.document))
        if rows:
            yield f"\n{bars.figure_table(rows)}\n\n{bars.tally(rows)}.\n"


def main():
    checking = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checking:
        raise SystemExit(__doc__)
    result = Result.read(RESULTS / "native.json")
    others = {p.stem: Result.read(p) for p in sorted(RESULTS.glob("*.json")) if p.stem != "native"}
    decoding = Result.read(INFERENCE) if INFERENCE.exists() else None
    text = "\n".join(page(result, decoding, others)).rstrip() + "\n"
    notes = summary.inserted(NOTES.read_text(encoding="utf-8"), {"native": result, **others})
    images = ((plots.IMAGES, result), (plots.INFERENCE_IMAGES, decoding))
    if not checking:
        PAGE.write_text(text, encoding="utf-8")
        NOTES.write_text(notes, encoding="utf-8")
        for names, drawn in images:
            plots.draw_all(names, drawn, IMAGES)
        print(f"wrote {PAGE.relative_to(TOP)}, {NOTES.relative_to(TOP)} and {IMAGES.relative_to(TOP)}")
        return
    stale = [path for path, made in ((PAGE, text), (NOTES, notes)) if path.read_text(encoding="utf-8") != made]
    stale += [path for names, drawn in images for path in (IMAGES / f"{n}.svg" for n in names)
              if plots.drawn_from(drawn) not in path.read_text(encoding="utf-8")]
    for path in stale:
        print(f"{path.relative_to(TOP)} is not what the results give: run scripts/bench --docs")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
