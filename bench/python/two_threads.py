#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What two Python threads that call at the same time gain: the interpreter's lock is free while the library computes.

two_threads.py [<file.json>]

Every call computes on the thread that makes it. A turn measures a number of calls on one thread, and as many on each of two at once.
Printed is the median over turns of the latter time over the former: 1 where threads need nothing of each other, 2 where a call holds
the lock, for calls from microseconds to a tenth of a millisecond.
"""

import contextlib
import pathlib
import statistics
import sys
import threading
import time

from record import measured

TURNS = 31


def loop(call, calls):
    for _ in range(calls):
        call()


def seconds(calls, work):
    """From a gate that opens for all threads to the last one's end, each with a call of its own to repeat."""
    gate = threading.Barrier(len(work) + 1)

    def wait_and_loop(call):
        gate.wait()
        loop(call, calls)

    threads = [threading.Thread(target=wait_and_loop, args=(call,)) for call in work]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def measured_length(length):
    """A thread's arrays are its own."""
    import numpy as np

    import aft

    draw = np.random.default_rng(0)

    def call_of_its_own():
        q, k, v = draw.standard_normal((3, 1, length, 64), np.float32)
        out = np.empty_like(q)
        return lambda: aft.simple(q, k, v, causal=True, threads=1, out=out)

    work = [call_of_its_own(), call_of_its_own()]
    alone = seconds(50, work[:1]) / 50
    calls = max(20, int(0.05 / alone))
    found, once = [], []
    for _ in range(TURNS):
        once.append(seconds(calls, work[:1]))
        found.append(seconds(calls, work) / once[-1])
    quarters = statistics.quantiles(found, n=4)
    return {"microseconds": round(statistics.median(once) / calls * 1e6, 1), "ratio": round(quarters[1], 3),
            "quartiles": [round(q, 3) for q in quarters[::2]]}


def table(record):
    """Lines of the page."""
    yield (f"{record['cores']} cores of {record['processor']}, commit `{record['commit'][:12]}`, {record['date']}, load "
           f"{record['load'][0]} before:")
    yield ""
    yield "| positions of 64 channels | us of a call | two threads over one | half of the turns |"
    yield "|---|---|---|---|"
    for length, took in record["lengths"].items():
        low, high = took["quartiles"]
        yield f"| {length} | {took['microseconds']:g} | {took['ratio']} | {low} to {high} |"


def main():
    file = pathlib.Path(sys.argv[1]) if sys.argv[1:] else None
    with measured(file) if file else contextlib.nullcontext({}) as record:
        record["lengths"] = {str(length): measured_length(length) for length in (1, 64, 512, 4096)}
    for length, took in record["lengths"].items():
        print(f"simple, {length} positions of 64 channels, {took['microseconds']:.1f} us: two threads take {took['ratio']:.2f} times one's time")


if __name__ == "__main__":
    main()
