#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What cutting a sequence over processes costs: measured for two, and by a model for more. docs/scale.md has the tables.

scale.py --run PROGRAM RESULTS.json [ROUNDS]   one process of two threads and two of one thread, by turns, and messages between them
scale.py --table RESULTS.json                  prints the tables as Markdown
scale.py --check RESULTS.json PAGE.md          fails if the page holds others
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "report"))
from results import plain  # noqa: E402  (where it is comes first)
from run import commit, first_match  # noqa: E402

CASES = {"simple": "`simple`", "simple_causal": "`simple`, causal", "local": "`local`, window strict(32)",
         "conv": "`conv`, 32 taps", "full": "`full`, causal, u v^T of rank 64"}
LENGTH = {"full": 16384}
T, CHANNELS, RANK = 65536, 512, 64
# Open MPI refuses root and more processes than cores unless it is told; a waiting thread shall not take its neighbour's core.
ENVIRONMENT = ("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMP_PROC_BIND=false")
# A message's microseconds and bytes a second: what vendors promise of 100 Gb/s Ethernet or InfiniBand with RDMA, and of the fourth NVLink
# in one direction.
NETWORKS = {"100 Gb/s": (2.0, 12.5e9), "NVLink": (5.0, 450e9)}
RANKS = (2, 8, 64, 256, 1024)
MODELLED = 2**20  # positions


def start(program, ranks, threads, case, repetitions):
    # Both on the same two cores.
    pin = ("taskset", "--cpu-list", "0,1") if ranks == 1 else ()
    bind = ("--bind-to", "none") if ranks == 1 else ("--bind-to", "core")
    done = subprocess.run([*ENVIRONMENT, *pin, "mpirun", *bind, "-n", str(ranks), program, case, str(threads), str(repetitions)],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure(program, target, rounds):
    document = {**commit(), "cpu": first_match("/proc/cpuinfo", "model name"), "rounds": rounds,
                "messages": start(program, 2, 1, "messages", 20), "calls": {}}
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        sides = {"one": [], "two": []}
        for _ in range(rounds):
            for side, (ranks, threads) in {"one": (1, 2), "two": (2, 1)}.items():
                got = start(program, ranks, threads, case, 1)
                sides[side].append([statistics.median(got["forward_ms"]), statistics.median(got["backward_ms"])])
        document["calls"][case] = sides
        # After each: what is measured is not lost with what is not.
        pathlib.Path(target).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def ratios(sides):
    """The median over rounds, of neighbours: forward, backward."""
    return [statistics.median(one[i] / two[i] for one, two in zip(sides["one"], sides["two"])) for i in (0, 1)]


def received(case, ranks, backward):
    """Bytes and messages of one rank's call on a sequence of MODELLED positions: the page's table."""
    own, others, d = MODELLED / ranks, ranks - 1, CHANNELS
    causal = case in ("simple_causal", "full")
    # Records of all ranks take rounds, in which what a rank has doubles.
    rounds = math.ceil(math.log2(ranks))
    neighbours = min(2, others) if case in ("local", "conv") else 0
    gathered = 0 if case == "full" else others
    exchange = (rounds if gathered else 0) + neighbours
    sums, gradients = 8 * 3 * d * (gathered + neighbours), 8 * 3 * d * (gathered or neighbours)
    near = {"local": 31 * (1 if causal else 2), "conv": 31}.get(case, 0)
    count = 2 * rounds + (2 * others if case == "full" else neighbours) + exchange
    if case == "full":
        size = 4 * 2 * d * (MODELLED - own)
        if backward:
            return size + 4 * 2 * d * own * others + 4 * RANK * MODELLED * 3, count + 3 * others
        return size, count
    size = 4 * 2 * d * near + sums
    if backward:
        filters = case == "conv"
        return size + 4 * 2 * d * near + gradients + filters * 4 * 8 * 32 * ranks, count + neighbours + (rounds if gathered else neighbours) + filters * rounds
    return size, count


def efficiency(document, case, ranks, network, backward):
    """Of `ranks` machines like this one: its time on one, over ranks times the model's. Work beside messages is what it takes in two processes."""
    latency, rate = NETWORKS[network]
    i = 1 if backward else 0
    length = LENGTH.get(case, T)
    alone = 1e-3 * statistics.median(one[i] for one in document["calls"][case]["one"])
    alone *= (MODELLED / length) ** (2 if case == "full" else 1)
    overhead = 1 / ratios(document["calls"][case])[i]
    size, count = received(case, ranks, backward)
    return alone / ranks / (alone / ranks * overhead + 1e-6 * latency * count + size / rate)


def table(document):
    yield f"{document['cpu']}, two cores, commit {document['commit'][:12]}{'+' if document['modified'] else ''}, medians of {document['rounds']} rounds, d = {CHANNELS}, float:"
    yield ""
    yield "| call | T | one process of two threads, ms forward | backward | two processes of one thread | backward | efficiency | backward |"
    yield "|---|---|---|---|---|---|---|---|"
    for case, sides in document["calls"].items():
        median = {side: [plain(statistics.median(row[i] for row in sides[side])) for i in (0, 1)] for side in sides}
        forward, backward = ratios(sides)
        yield (f"| {CASES[case]} | {LENGTH.get(case, T):,} | {median['one'][0]} | {median['one'][1]} | {median['two'][0]} | "
               f"{median['two'][1]} | {forward:.2f} | {backward:.2f} |")
    yield ""
    m = document["messages"]
    small = dict(zip(m["bytes"], m["send_recv_us"]))
    largest = max(m["bytes"])
    yield (f"A message of 8 bytes between these two processes takes {plain(small[8])} us, an all_gather of as much {plain(m['all_gather_us'][0])} us, and "
           f"{largest / 2**20:.0f} MiB go at {plain(largest / small[largest] / 1e3)} GB/s each way.")
    yield ""
    yield "| call | network | " + " | ".join(f"{ranks} ranks" for ranks in RANKS) + " | MB received by one of 64 |"
    yield "|---|---|" + "---|" * (len(RANKS) + 1)
    for case in document["calls"]:
        for backward in (False, True):
            for network in NETWORKS:
                cells = " | ".join(f"{efficiency(document, case, ranks, network, backward):.2f}" for ranks in RANKS)
                yield (f"| {CASES[case]}{', backward' if backward else ''} | {network} | {cells} | "
                       f"{plain(received(case, 64, backward)[0] / 1e6)} |")


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--run"] and len(arguments) in (3, 4):
        measure(arguments[1], arguments[2], int(arguments[3]) if len(arguments) == 4 else 5)
        return 0
    if arguments[:1] == ["--table"] and len(arguments) == 2:
        print("\n".join(table(json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8")))))
        return 0
    if arguments[:1] == ["--check"] and len(arguments) == 3:
        wanted = "\n".join(table(json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))))
        if wanted in pathlib.Path(arguments[2]).read_text(encoding="utf-8"):
            return 0
        print(f"{arguments[2]} does not hold these tables:\n\n{wanted}", file=sys.stderr)
        return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
