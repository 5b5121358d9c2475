# SPDX-License-Identifier: Apache-2.0
"""A page of the documents that is made from the records that passing tests leave: one entry a name."""

import json
import pathlib
import sys


def run(source, target, page, problems, self_test, what, usage):
    """`source` is the file of records, `target` the page; page(records) gives its text and problems(text, records) what is wrong with
    both. self_test(records) ends the program where an offence is not found."""
    records = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
    if sys.argv[1:2] == ["--record"] and len(sys.argv) == 3:
        for path in sorted(pathlib.Path(sys.argv[2]).glob("*.json")):
            records.update(json.loads(path.read_text(encoding="utf-8")))
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    elif sys.argv[1:] == ["--check"]:
        self_test(records)
        wrong = list(problems(target.read_text(encoding="utf-8"), records))
        print("\n".join(wrong) or f"{len(records)} {what} have a record, and the page shows it")
        sys.exit(1 if wrong else 0)
    elif sys.argv[1:]:
        sys.exit(usage)
    target.write_text(page(records), encoding="utf-8")
