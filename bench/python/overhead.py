#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of the Python package costs beside the call of C behind it, on one position of 8 channels in float.

overhead.py <prefix of an installed aft::compiled> [<file.json>]

The package has to be importable. The program small_call.c, linked with the same library, says what C takes. Each figure
is the least of many repetitions, in microseconds, on one thread: what else runs on a machine only makes them longer.
"""

import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import timeit

from record import git, processor, two_columns

HERE = pathlib.Path(__file__).resolve().parent
REPETITIONS, CALLS = 50, 2000


def microseconds(call):
    call()
    return min(timeit.repeat(call, number=CALLS, repeat=REPETITIONS)) / CALLS * 1e6


def of_c(prefix):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "small_call"
        compiled, library = program.with_suffix(".o"), prefix / "lib/libaft_compiled.a"
        subprocess.run(["cc", "-O2", "-c", HERE / "small_call.c", "-I", prefix / "include", "-o", compiled], check=True)
        subprocess.run(["c++", compiled, library, "-fopenmp", "-o", program], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def table(record):
    """Lines of the page."""
    head = (f"Microseconds of one call on a position of 8 channels in float, on one thread of {record['processor']}, commit "
            f"`{record['commit'][:12]}`, {record['date']}:")
    return two_columns(head, "call", "us", record["microseconds"])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    import numpy

    import aft

    x, y = numpy.ones((1, 1, 8), numpy.float32), numpy.empty((1, 1, 8), numpy.float32)
    w = numpy.zeros((1, 1), numpy.float32)
    times = {"aft_simple from C": of_c(pathlib.Path(sys.argv[1])),
             "aft.simple": microseconds(lambda: aft.simple(x, x, x, threads=1)),
             "aft.simple, out=": microseconds(lambda: aft.simple(x, x, x, threads=1, out=y)),
             "aft.full": microseconds(lambda: aft.full(x, x, x, w, threads=1)),
             "aft.simple_backward": microseconds(lambda: aft.simple_backward(x, x, x, x, threads=1)),
             "numpy.add": microseconds(lambda: numpy.add(x, x))}
    for name, took in times.items():
        print(f"{name:20} {took:6.2f} us")
    if len(sys.argv) == 3:
        found = {"microseconds": {name: round(took, 2) for name, took in times.items()}, "processor": processor(),
                 "commit": git("rev-parse", "HEAD"), "date": time.strftime("%Y-%m-%d", time.gmtime()), "aft": aft.build_info(),
                 "python": platform.python_version(),
                 "numpy": numpy.__version__}
        pathlib.Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
