#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The counting itself: machine code written by hand, growth that is planted, and sizes against plain loops over pairs."""

import copy
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import calls  # noqa: E402: found by the line above
import comparison  # noqa: E402
import count  # noqa: E402
import estimate  # noqa: E402
import kernels  # noqa: E402
import sass  # noqa: E402

PLAIN = 0x000FEA0003800000
FFMA, HMMA, NOP, EXIT, LDS = 0x7223, 0x723C, 0x7918, 0x794D, 0x7984
TAKEN, IF_P0 = 7, 0


def branch(at, to, split, predicate=TAKEN, uniform=0):
    """The words of a branch from instruction `at` to `to`, written the other way round than they are read."""
    words = 4 * (to - at - 1)
    low = 0x947 | predicate << 12 | uniform << 32
    distance = words >> 8 if split else words
    distance &= (1 << 48) - 1
    if split:
        low |= (words & 0xFF) << 16
    return low | (distance << 34) & ((1 << 64) - 1), PLAIN | distance >> 30


def program(*items, split=True):
    """Instructions of opcodes, of (opcode, high word) and of branches ("to", index, predicate, uniform)."""
    code = []
    for at, item in enumerate(items):
        if isinstance(item, tuple) and item[0] == "to":
            low, high = branch(at, item[1], split, *item[2:])
        else:
            low, high = item if isinstance(item, tuple) else (item, PLAIN)
        code.append(sass.decoded(low, high, 16 * at, split))
    return code


class machine_code(unittest.TestCase):
    def test_branches_as_a_disassembler_shows_them(self):
        # nvdisasm 13.5: forward on sm_90a, backward on sm_90a and sm_80.
        self.assertEqual(sass.decoded(0x0000000000448947, 0x000FEA0003800000, 0x160, True).targets, (0x280,))
        self.assertEqual(sass.decoded(0xFFFFFFFC00FC7947, 0x000FC0000383FFFF, 0x100A0, True).targets, (0x100A0,))
        self.assertEqual(sass.decoded(0xFFFFC51000007947, 0x000FEA000383FFFF, 0x50D0, False).targets, (0x15F0,))

    def test_a_loop_and_one_within_it(self):
        for split in (False, True):
            code = program(NOP, FFMA, FFMA, ("to", 2, IF_P0), FFMA, ("to", 1, IF_P0), EXIT, split=split)
            self.assertEqual(sorted(map(sorted, sass.loops(code))), [[1, 2, 3, 4, 5], [2, 3]])

    def test_code_moved_behind_the_end_belongs_to_its_loop(self):
        code = program(NOP, FFMA, ("to", 5, IF_P0), ("to", 1, IF_P0), EXIT, FFMA, ("to", 3), NOP)
        self.assertEqual(list(map(sorted, sass.loops(code))), [[1, 2, 3, 5, 6]])

    def test_a_branch_by_a_uniform_predicate_may_go_on(self):
        for uniform, loops in ((0, 0), (1, 1), (2, 1)):
            code = program(NOP, ("to", 5, TAKEN, uniform), FFMA, ("to", 2, IF_P0), NOP, EXIT)
            self.assertEqual(len(sass.loops(code)), loops)

    def test_tables_of_jumps(self):
        info = bytes.fromhex("030500ff") + bytes.fromhex("04341400") + b"".join(
            x.to_bytes(4, "little") for x in (16, 0, 2, 32, 64))
        self.assertEqual(sass.tables_of_jumps(info), {16: (32, 64)})
        jump = sass.decoded(0x7949, PLAIN, 16, True, sass.tables_of_jumps(info))
        self.assertEqual((jump.targets, jump.always), ((32, 64), True))

    def test_multiply_adds_of_a_main_loop(self):
        k16, k8 = (HMMA, PLAIN | 0x1800), (HMMA, PLAIN & ~0xFFF00 | 0x1000)
        code = program(NOP, FFMA, FFMA, FFMA, FFMA, ("to", 1, IF_P0), k16, k16, ("to", 6, IF_P0), EXIT)
        figures = kernels.describe("gemm_mma<query_rows>", code)
        self.assertEqual((figures["loop"], figures["multiply_adds"], figures["results_loop"]), (3, 2 * 16 * 8 * 16, 5))
        code = program(NOP, k8, k8, ("to", 1, IF_P0), EXIT)
        self.assertEqual(kernels.describe("product<tf32_operand>", code)["multiply_adds"], 2 * 16 * 8 * 8 // 4)

    def test_pairs_are_summed_where_shared_memory_is_read(self):
        code = program(NOP, FFMA, FFMA, FFMA, ("to", 1, IF_P0), LDS, FFMA, ("to", 5, IF_P0), EXIT)
        self.assertEqual(kernels.describe("fold<float>", code)["loop"], 3)
        self.assertEqual(kernels.describe("scan_rows<float>", code)["loop"], 4)


class growth(unittest.TestCase):
    def setUp(self):
        self.before = {
            "nvcc": "V1", "kernels": {"gemm_mma<key_rows>": {"sm_80": {"loop": 100, "multiply_adds": 1000, "tensor": True,
                                                                       "results_loop": 7, "classes": {}}},
                                      "scan<float>": {"sm_80": {"loop": 50, "multiply_adds": 32, "classes": {}}}},
            "calls": {"c": {"case": "c", "warpgroups": [["k", 1, 32, 0]], "mma": [["k", 1, 32, 0]], "scratch": 8,
                            "cleared": 0}}}
        self.now = copy.deepcopy(self.before)

    def said(self):
        return count.check(self.before, self.now, "page", "page")

    def assert_grew(self):
        said, failed = self.said()
        self.assertTrue(failed)
        self.assertTrue(said.startswith("grew"), said)

    def test_nothing(self):
        self.assertEqual(self.said(), ("counts as committed", False))

    def test_an_instruction_more(self):
        for name in self.before["kernels"]:
            self.setUp()
            self.now["kernels"][name]["sm_80"]["loop"] += 1
            self.assert_grew()

    def test_a_longer_loop_of_results(self):
        self.now["kernels"]["gemm_mma<key_rows>"]["sm_80"]["results_loop"] += 1
        self.assert_grew()

    def test_a_turn_twice_as_long_that_does_twice_as_much_has_not_grown(self):
        self.now["kernels"]["gemm_mma<key_rows>"]["sm_80"].update(loop=200, multiply_adds=2000)
        said, failed = self.said()
        self.assertTrue(failed and said.startswith("changed") and "--write" in said, said)

    def test_a_launch_more(self):
        self.now["calls"]["c"]["mma"].append(["k", 1, 32, 0])
        self.assert_grew()

    def test_scratch(self):
        self.now["calls"]["c"]["scratch"] += 1
        self.assert_grew()

    def test_fewer_instructions_ask_to_be_written(self):
        self.now["kernels"]["scan<float>"]["sm_80"]["loop"] -= 1
        said, failed = self.said()
        self.assertTrue(failed and said.startswith("changed") and "smaller: count.py --write" in said, said)

    def test_a_new_kernel_and_a_page_out_of_date(self):
        self.now["kernels"]["new<float>"] = {"sm_80": {"loop": 1, "multiply_adds": 0, "classes": {}}}
        self.assertTrue(self.said()[1])
        self.assertTrue(count.check(self.before, self.before, "page", "another")[1])

    def test_another_nvcc_compares_launches_alone(self):
        self.now["nvcc"] = "V2"
        self.now["kernels"]["scan<float>"]["sm_80"]["loop"] += 1
        said, failed = self.said()
        self.assertTrue(not failed and "not comparable" in said, said)
        self.now["calls"]["c"]["scratch"] += 1
        self.assert_grew()


class shapes(unittest.TestCase):
    def pairs(self, size, sees):
        return sum(sees(t, s) for t in range(size.T) for s in range(size.T))

    def test_pairs_that_rows_see(self):
        for name, sees in (("full B2 T50 d8", lambda t, s: True), ("full causal B2 T50 d8", lambda t, s: s <= t),
                           ("local s=7 causal B2 T50 d8", lambda t, s: t - 7 < s <= t),
                           ("local s=7 B2 T50 d8", lambda t, s: abs(t - s) < 7), ("simple B2 T50 d8", lambda t, s: False),
                           ("conv 7x7 k=5 heads 4 B2 d8", lambda t, s: max(abs(t // 7 - s // 7), abs(t % 7 - s % 7)) <= 2)):
            size = calls.sizes(name)
            self.assertEqual(size.visible(), self.pairs(size, sees), name)
            self.assertEqual(size.least_multiply_adds(False), 2 * size.visible() * 2 * 8)

    def test_tiles_that_rows_touch(self):
        for name in ("full B2 T50 d8", "full causal B2 T50 d8", "local s=7 causal B2 T50 d8", "local s=7 B2 T50 d8"):
            size = calls.sizes(name)
            back, ahead = size.reach(size.T)
            touched = {(t // 16, s // 8) for t in range(50) for s in range(50) if -back <= s - t <= ahead}
            self.assertEqual(size.tile_pairs(16, 8), 128 * len(touched), name)

    def test_bytes(self):
        # q, v and y of 8 channels, k of 4, and 4 filters of 25 taps, each of 2 bytes.
        self.assertEqual(calls.sizes("conv 7x7 k=5 heads 4 B2 d8").least_bytes(2, False), 2 * (2 * 49 * 28 + 100))
        self.assertEqual(calls.sizes("full B2 T50 d8").least_bytes(4, True), 3 * 4 * (2 * 50 * 32 + 2500))

    def test_steps_of_streams(self):
        step = calls.sizes("step of local s=32 B64 d8")
        self.assertEqual(step.least_bytes(2, False), 64 * 8 * (4 * (2 * 32 + 24) + 4 * 2))
        self.assertEqual(step.least_multiply_adds(False), 2 * 32 * 64 * 8)
        self.assertEqual(calls.sizes("step of simple B3 d8").least_bytes(4, False), 3 * 8 * (4 * 24 + 4 * 4))
        full = calls.sizes("step of full at 100 B2 d8")
        self.assertEqual(full.least_bytes(4, False), 2 * 8 * (4 * 200 + 4 * 4))
        self.assertEqual(full.tile_pairs(16, 8), 0)
        # Two blocks load what memory could give 132 in less time.
        call = {"pass": "forward", "type": "f32", "scratch": 0, "cleared": 0, "launches": [["stream_full_kernel<float>", 2, 256, 0]]}
        low, _, moved = estimate.call_seconds(call, {}, {}, full)
        self.assertAlmostEqual(low, moved / (2 * 64 * 1.755e9))

    def test_packed_sequences(self):
        size = calls.sizes("packed full B3 T10 spread 4 d8")
        self.assertEqual(size.lengths, [6, 10, 14])
        self.assertEqual(size.least_bytes(2, False), 2 * (30 * 32 + 14 ** 2))
        self.assertEqual(size.least_multiply_adds(False), 2 * (36 + 100 + 196) * 8)
        self.assertEqual(size.tile_pairs(8, 8), 64 * (1 + 4 + 4))
        self.assertEqual(calls.sizes("packed simple causal B3 T10 spread 4 d8").visible(), 0)

    def test_blocks_that_fit(self):
        self.assertEqual(estimate.resident(256, 128, 16544), 2)   # of registers, 32 of 64 K each
        self.assertEqual(estimate.resident(128, 32, 100 << 10), 2)  # of shared memory
        self.assertEqual(estimate.resident(1024, 32, 0), 2)         # of warps
        self.assertEqual(estimate.resident(32, 16, 0), 32)          # of blocks
        self.assertAlmostEqual(estimate.tail(1.25), 1.6)


if __name__ == "__main__":
    unittest.main()
