# SPDX-License-Identifier: Apache-2.0
"""The result of a run: what the harness wrote, condensed to one document, and read back."""

import json
import pathlib
import statistics

FORMAT = 1


def quartiles(values):
    """First quartile, median, third quartile; of one value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, median, q3


def rounded(x):
    """Five digits: more than any timing has, fewer than a committed file needs."""
    return float(f"{x:.5g}")


def plain(x, digits=3):
    """Significant digits without an exponent: 0.0333, 1.04, 184."""
    text = f"{x:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def condense(harness):
    """Races of the harness's own JSON: every repetition is a round, its counters are seconds and facts. And what went
    wrong, a line per race."""
    races = {}
    errors = {}
    for run in harness["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        name = run["run_name"].split("/iterations:")[0]
        if run.get("error_occurred"):
            errors.setdefault(name, run["error_message"])
            continue
        known = set(KNOWN_FIELDS)
        counters = {k: v for k, v in run.items() if k not in known and isinstance(v, (int, float))}
        race = races.setdefault(name, {"name": name, "seconds": {}, "facts": {}})
        for key, value in counters.items():
            # Facts carry a point in their names (flops.aft), contestants do not.
            if "." in key:
                race["facts"][key] = value
            else:
                race["seconds"].setdefault(key, []).append(rounded(value))
    return [r for name, r in races.items() if name not in errors], [f"{n}: {e}" for n, e in errors.items()]


KNOWN_FIELDS = ("family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations",
                "real_time", "cpu_time")


class Race:
    """One race of a result. Samples of the same index come from the same round."""

    def __init__(self, record):
        self.name = record["name"]
        self.seconds = record["seconds"]
        self.facts = record["facts"]

    def __contains__(self, contestant):
        return contestant in self.seconds

    def median(self, contestant):
        return statistics.median(self.seconds[contestant])

    def spread(self, contestant):
        return quartiles(self.seconds[contestant])

    def rounds(self):
        names = list(self.seconds)
        for i in range(len(self.seconds[names[0]])):
            yield {n: self.seconds[n][i] for n in names}


class Result:
    def __init__(self, document):
        if document["format"] != FORMAT:
            raise SystemExit(f"result of format {document['format']}, this is for {FORMAT}")
        self.document = document
        self.races = {r["name"]: Race(r) for r in document["races"]}

    @staticmethod
    def read(path):
        return Result(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))


def write(document, path):
    """One line per race and per list, so that a committed file can be compared line by line."""
    lines = ["{"]
    for key, value in document.items():
        if key in ("races", "memory") and value:
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f' "{key}": [\n{rows}\n ],')
        else:
            lines.append(f' "{key}": {json.dumps(value)},')
    lines[-1] = lines[-1].rstrip(",")
    pathlib.Path(path).write_text("\n".join(lines) + "\n}\n", encoding="utf-8")
