# SPDX-License-Identifier: Apache-2.0
"""Other threads of Python run while the library computes."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import aft


@pytest.fixture
def patient():
    """Threads are told to give up the lock so rarely that a count during a call can only come from its release."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def long_call():
    """One call, on one thread, of a length that takes the library a tenth of a second, however it was built."""
    length = 128
    while True:
        x, w = np.ones((1, length, 64), np.float32), np.zeros((length, length), np.float32)
        begin = time.perf_counter()
        aft.full(x, x, x, w, threads=1)
        if time.perf_counter() - begin > 0.1:
            return lambda: aft.full(x, x, x, w, threads=1)
        length *= 2


def test_other_threads_count_during_a_call(patient):
    call, counts, over = long_call(), [], threading.Event()
    started = threading.Event()

    def count():
        started.set()
        while not over.is_set():
            counts.append(time.perf_counter())
            # Gives the lock up: nothing else would make this thread do so for a minute.
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    try:
        while not counts:
            time.sleep(0.001)
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
    finally:
        over.set()
        thread.join()
    # A count at either end could be made before the call and after it.
    assert sum(begin < t < end for t in counts) > 2


FORKED = """
import multiprocessing
import numpy as np
import aft

x = np.random.default_rng(0).standard_normal((8, 256, 64), np.float32)

def call(threads):
    return aft.simple(x, x, x, threads=threads).tobytes()

if __name__ == "__main__":
    here = call(2)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(call, (2,)).get(60) == here
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_wait_for_threads():
    """Those of OpenMP stay behind."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)


def test_two_threads_have_results_of_their_own():
    """Calls at the same time, each with arrays and errors of its own."""
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal((3, 1, 64, 32)).astype(np.float32) for _ in range(4)]
    expected = [aft.simple(*x, threads=1).tobytes() for x in inputs]
    failures = []

    def work(i):
        q, k, v = inputs[i]
        for _ in range(50):
            if aft.simple(q, k, v, threads=1).tobytes() != expected[i]:
                failures.append(i)
            try:
                aft.simple(q, k, v[:, :, :i + 1])
                failures.append("no error")
            except ValueError as error:
                if f"got {i + 1}" not in str(error):
                    failures.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
