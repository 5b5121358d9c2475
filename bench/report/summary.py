# SPDX-License-Identifier: Apache-2.0
"""The ceilings of several runs side by side: the table of docs/developing/performance.md."""

import re

import bars

LETTERS = dict(zip(bars.SHAPES, "abcd"))
RUNS = ("native", "zen5", "emerald-rapids", "zen3")
BEGIN = "<!-- table: made by bench/report/docs.py -->"
END = "<!-- end of table -->"


def cells(result):
    """The ratios of each kind of work, in the order of the shapes, as `a 0.99, b 0.872`."""
    found = {}
    for row in bars.evaluate(result, bars.ceilings()):
        letter = LETTERS.get(row.bar.race.split("/")[1], "")
        found.setdefault((row.bar.work, row.bar.against), []).append(f"{letter} {bars.plain(row.median)}".strip())
    return {work: ", ".join(sorted(values)) for work, values in found.items()}


def table(results):
    """Markdown; `results` are by name of their file."""
    runs = [name for name in RUNS if name in results]
    documents = {name: results[name].document for name in runs}
    columns = {name: cells(results[name]) for name in runs}
    order = dict.fromkeys((bar.work, bar.against, bar.lower) for bar in bars.ceilings())
    rows = [("work", "against", *(f"`{name}.json`" for name in runs)),
            ("processor", "", *(f"{d['machine']['cpu']}, family {d['machine']['family']} model {d['machine']['model']}"
                                for d in documents.values())),
            ("commit, date", "", *(f"`{d['commit'][:12]}`, {d['date'][:10]}" for d in documents.values())),
            ("threads, flags", "", *(f"{d['threads']}, `{d['flags']}`" for d in documents.values()))]
    for work, against, lower in order:
        if any((work, against) in c for c in columns.values()):
            rows.append((work, against + (" (less is better)" if lower else ""),
                         *(columns[name].get((work, against), "-") for name in runs)))
    return ("Medians of ratios to the ceilings, from `bench/results`; 1 is the ceiling. Shapes, batch x positions x channels: a 8 x 1024\n"
            "x 512, b 32 x 197 x 384, c 2 x 3072 x 256, d 1 x 4096 x 512. What each ceiling is, and quartiles, stands on the\n"
            "[page of benchmarks](../benchmarks.md#against-the-machine).\n\n" + bars.aligned(rows))


def inserted(text, results):
    """The page with the table that the results give between its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    if not pattern.search(text):
        raise SystemExit(f"no {BEGIN} in the page")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table(results)}\n\n{END}", text)
